// What a start and a round of the reconciler wait for, and which workspaces they remove.
#include "workspace/recovery/reconcile.h"

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "patience.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/snapshots.h"
#include "workspace/access/placement_fixture.h"
#include "workspace/context/new_workspace.h"

namespace moorage::workspace {
namespace {

using namespace std::chrono_literals;
using state_db::ExecState;
using state_db::IntegrityState;
using state_db::SandboxState;
using state_db::WorkspaceState;

constexpr int64_t kMinute_ms = 60'000;
const auto kLong = 20s * tests::patience();

struct ReconcileFixture : PlacementFixture {
  // An engine whose destroy waits until the test releases it.
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> hanging = 0;
  Reconciler reconciler{context, repositories, workspaces, *watcher, 50ms};

  ReconcileFixture() {
    docker->before_destroy = [this](const std::string&) {
      ++hanging;
      released.wait();
    };
  }
  // Needs no repair.
  state_db::WorkspaceRow make_whole(const std::string& name, const std::string& backend) {
    const auto row = make_workspace(name, backend);
    state_db::IntegrityTable(store).set(row.id, IntegrityState::intact);
    state_db::IntegrityTable(store).set_seal(row.id, "sealed");
    return row;
  }
  // Has a sandbox whose init is gone, and a command that ran in it.
  state_db::ExecRow make_dead(const std::string& name, const std::string& backend) {
    state_db::NewSandbox sandbox;
    sandbox.workspace = make_whole(name, backend).id;
    sandbox.backend = backend;
    sandbox.image = "host";
    state_db::SandboxTable sandboxes(store);
    state_db::ExecRequest request;
    request.workspace = sandbox.workspace;
    request.sandbox = sandboxes.create(sandbox).id;
    sandboxes.set_running(request.sandbox, {});
    request.argv = {"true"};
    request.user = "user";
    state_db::ExecTable table(store);
    return table.get(table.create(request).id);
  }
  base::WorkspaceId make_disposable(const std::string& name, bool pinned = false) {
    auto wanted = new_workspace(store, name, 0);
    wanted.backend = "lxc";
    wanted.image = "host";
    wanted.disposable = true;
    wanted.policy.pinned = pinned;
    state_db::WorkspaceTable table(store);
    const auto id = table.create(wanted).id;
    table.set_ready(id);
    storage->make_layer(table.get(id).layer);
    return id;
  }
  SandboxState state(const state_db::ExecRow& exec) {
    return state_db::SandboxTable(store).get(exec.request.sandbox).state;
  }
  WorkspaceState state(base::WorkspaceId id) {
    return state_db::WorkspaceTable(store).get(id).state;
  }
  state_db::ExecRow now(const state_db::ExecRow& exec) {
    return state_db::ExecTable(store).get(exec.id);
  }
  template <typename Condition>
  bool comes(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
    return condition();
  }
  // Fails if the work waits for the engine.
  template <typename Work>
  void require_end(Work work) {
    auto ending = std::async(std::launch::async, work);
    const bool ends = ending.wait_for(kLong) == std::future_status::ready;
    if (!ends) release.set_value();
    REQUIRE(ends);
  }
};

}  // namespace

TEST_CASE("a sandbox with unkillable processes does not delay other workspaces at start") {
  ReconcileFixture test;
  const auto cut = test.make_dead("cut", "docker");
  const auto id = cut.request.workspace;
  const auto other = test.make_whole("other", "lxc");
  test.require_end([&] { test.reconciler.at_start(); });
  CHECK(test.state(cut) == SandboxState::lost);
  CHECK(test.now(cut).state == ExecState::running);
  CHECK_NOTHROW(test.locks.lock(other.id.str(), "start", 0ms));
  CHECK_THROWS_WITH(test.locks.lock(id.str(), "start", 0ms), Catch::Contains("repair"));
  test.reconciler.after_ready();
  CHECK(test.comes([&] { return test.hanging == 1; }));
  CHECK(test.now(cut).state == ExecState::running);
  test.release.set_value();
  CHECK_NOTHROW(test.locks.lock(id.str(), "start", kLong));
  CHECK(test.state(cut) == SandboxState::destroyed);
  CHECK(test.now(cut).outcome.category == state_db::ExecCategory::lost);
}

TEST_CASE("sandboxes with unkillable processes delay neither a round nor later steps") {
  ReconcileFixture test;
  std::vector<state_db::ExecRow> stuck;
  for (const std::string name : {"a", "b", "c"}) stuck.push_back(test.make_dead(name, "docker"));
  const auto quick = test.make_dead("quick", "lxc");
  const auto cut = test.make_whole("cut", "lxc").id;
  test.store.move(cut, WorkspaceState::ready, WorkspaceState::deleting, "by the test");
  test.require_end([&] { test.reconciler.periodic(); });
  CHECK(test.comes([&] { return test.state(quick) == SandboxState::destroyed; }));
  CHECK(test.comes([&] { return test.state(cut) == WorkspaceState::deleted; }));
  CHECK(test.comes([&] { return test.hanging == 3; }));
  test.require_end([&] { test.reconciler.periodic(); });
  CHECK(test.hanging == 3);  // each is still running
  test.release.set_value();
  for (const auto& exec : stuck) {
    CHECK(test.comes([&] { return test.state(exec) == SandboxState::destroyed; }));
    CHECK(test.comes([&] { return test.now(exec).state == ExecState::interrupted; }));
  }
}

TEST_CASE("a waiting disposable workspace is removed only if nobody touched it") {
  ReconcileFixture test;
  const auto untouched = test.make_disposable("untouched");
  const auto written = test.make_disposable("written");
  const auto leased = test.make_disposable("leased");
  const auto pinned = test.make_disposable("pinned", true);
  const auto used = test.make_disposable("used");
  // As writing a file does before its first byte.
  state_db::IntegrityTable(test.store).set(written, IntegrityState::intact);
  const auto use = test.live.use(used);
  Leases::Wanted wanted;
  wanted.holder = "agent";
  wanted.ttl_ms = 60 * kMinute_ms;
  test.workspaces.leases().acquire({}, state_db::WorkspaceTable(test.store).get(leased), wanted);
  test.clock.shift_ms = 9 * kMinute_ms;
  test.reconciler.periodic();
  CHECK(test.state(untouched) == WorkspaceState::ready);
  test.clock.shift_ms = 11 * kMinute_ms;
  test.reconciler.periodic();
  CHECK(test.comes([&] { return test.state(untouched) == WorkspaceState::deleted; }));
  for (const auto id : {written, leased, pinned, used})
    CHECK(test.state(id) == WorkspaceState::ready);
}

}  // namespace moorage::workspace
