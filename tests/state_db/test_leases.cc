#include <catch2/catch.hpp>

#include "base/os/accounts.h"
#include "state_db/tables/leases.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

NewLease lease_of(base::WorkspaceId workspace, const std::string& holder, uint32_t uid = 1000) {
  return {.workspace = workspace, .holder = holder, .holder_uid = uid, .ttl_ms = 60'000};
}

std::string last_event(Store& store) {
  const auto events = store.events(store.last_event() - 1, 1);
  return events.front().kind + ": " + events.front().text;
}

}  // namespace

TEST_CASE("a generation only grows: at release, lapse, take-over and restart") {
  TestStore test;
  const auto workspace = make_workspace(*test.store, make_repository(*test.store));
  CHECK_FALSE(LeaseTable(*test.store).find(workspace));
  const uint64_t commits = test.store->commits();
  CHECK(LeaseTable(*test.store).grant(lease_of(workspace, "a")).generation == 1);
  CHECK(test.store->commits() == commits + 1);
  CHECK(last_event(*test.store) == "lease.acquired: a (" + base::user_name(1000) + ", lease 1)");
  LeaseTable(*test.store).end(workspace, "released");
  CHECK(last_event(*test.store) == "lease.released: a (" + base::user_name(1000) + ", lease 1)");
  CHECK(LeaseTable(*test.store).grant(lease_of(workspace, "a")).generation == 2);
  LeaseTable(*test.store).end(workspace, "lapsed");
  test.reopen();
  CHECK(LeaseTable(*test.store).find(workspace)->ended == "lapsed");
  CHECK(LeaseTable(*test.store).grant(lease_of(workspace, "b")).generation == 3);
  CHECK(LeaseTable(*test.store).grant(lease_of(workspace, "c", 1001)).generation == 4);
  CHECK(last_event(*test.store) == "lease.taken_over: c (" + base::user_name(1001) +
                                       ", lease 4) from b (" + base::user_name(1000) +
                                       ", lease 3)");
  test.reopen();
  const auto row = LeaseTable(*test.store).list().at(0);
  CHECK(row.held());
  CHECK(row.generation == 4);
  CHECK(row.holder == "c");
  CHECK(row.holder_uid == 1001);
  CHECK(row.ttl_ms == 60'000);
  CHECK(row.acquired_wall_ms == test.clock.now_ms);
  CHECK_FALSE(row.clearing);
}

TEST_CASE("an ended lease does not end again") {
  TestStore test;
  const auto workspace = make_workspace(*test.store, make_repository(*test.store));
  LeaseTable leases(*test.store);
  leases.end(workspace, "lapsed");
  leases.grant(lease_of(workspace, "a"));
  leases.end(workspace, "released");
  const auto seq = test.store->last_event();
  leases.end(workspace, "lapsed");
  CHECK(test.store->last_event() == seq);
  CHECK(leases.find(workspace)->ended == "released");
}

TEST_CASE("a take-over marks running commands in its commit and clears until they have ended") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  const auto workspace = make_workspace(*test.store, repository);
  const auto other = make_workspace(*test.store, repository, "other");
  ExecTable execs(*test.store);
  const auto mine = execs.create(new_exec(make_sandbox(*test.store, workspace))).id;
  const auto ended = execs.create(new_exec(*SandboxTable(*test.store).live(workspace))).id;
  execs.finish(ended, {.state = ExecState::exited, .exit_code = 0});
  const auto others = execs.create(new_exec(make_sandbox(*test.store, other))).id;
  LeaseTable leases(*test.store);
  leases.grant(lease_of(workspace, "a"));
  CHECK_FALSE(execs.get(mine).cancel_requested);
  auto over = lease_of(workspace, "b");
  over.end_execs = true;
  over.request_key = "key";
  over.secret_hash = "first";
  const uint64_t commits = test.store->commits();
  leases.grant(over);
  CHECK(test.store->commits() == commits + 1);
  CHECK(execs.get(mine).cancel_requested);
  CHECK_FALSE(execs.get(ended).cancel_requested);
  CHECK_FALSE(execs.get(others).cancel_requested);
  test.reopen();
  CHECK(LeaseTable(*test.store).find(workspace)->clearing);
  CHECK(LeaseTable(*test.store).find(workspace)->request_key == "key");
  CHECK(LeaseTable(*test.store).find(workspace)->secret_hash == "first");
  LeaseTable(*test.store).renew_secret(workspace, "second");
  CHECK(LeaseTable(*test.store).list().at(0).secret_hash == "second");
  LeaseTable(*test.store).set_cleared(workspace);
  CHECK_FALSE(LeaseTable(*test.store).find(workspace)->clearing);
}

TEST_CASE("viewers see their own workspaces and those shared with their groups") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const auto make = [&](const char* name, uint32_t owner, std::optional<uint32_t> gid) {
    auto wanted = new_workspace(repository, name);
    wanted.owner_uid = owner;
    wanted.team_gid = gid;
    wanted.idempotency_key.reset();
    const auto id = workspaces.create(wanted).id;
    ExecTable(*test.store).create(new_exec(make_sandbox(*test.store, id)));
    return id;
  };
  make("a", 1000, {});
  make("b", 1001, 70);
  make("c", 1001, 71);
  const auto seen = [&](const Viewer& viewer) {
    std::string names;
    for (const auto& row : workspaces.list({.seen_by = viewer})) names += row.name;
    CHECK(ExecTable(*test.store).list({.seen_by = viewer}).size() == names.size());
    return names;
  };
  CHECK(seen({1000, {}}) == "a");
  CHECK(seen({1000, {70}}) == "ab");
  CHECK(seen({1000, {5, 71, 70}}) == "abc");
  CHECK(seen({1001, {}}) == "bc");
  CHECK(seen({1002, {1000, 1001}}).empty());
  CHECK(workspaces.find_by_name("b", Viewer{1000, {70}}).size() == 1);
  CHECK(workspaces.find_by_name("b", Viewer{1000, {71}}).empty());
  const auto b = workspaces.find_by_name("b").at(0).id;
  const auto seq = test.store->last_event();
  workspaces.set_team(b, 70, "shared with group devs");
  CHECK(test.store->last_event() == seq);
  workspaces.set_team(b, std::nullopt, "private");
  CHECK(last_event(*test.store) == "workspace.shared: private");
  CHECK(seen({1000, {70}}) == "a");
}
