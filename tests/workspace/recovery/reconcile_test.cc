// What a start and a round of the reconciler wait for, and which workspaces they remove.
#include "workspace/recovery/reconcile.h"

#include <catch2/catch.hpp>
#include <future>

#include "base/os/files.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/recovery/recovery_fixture.h"

namespace moorage::workspace {
namespace {

using namespace std::chrono_literals;
using state_db::ExecState;
using state_db::IntegrityState;
using state_db::SandboxState;
using state_db::WorkspaceState;

constexpr int64_t kMinute_ms = 60'000;

struct ReconcileFixture : RecoveryFixture {
  // An engine whose destroy waits until the test releases it.
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> hanging = 0;

  ReconcileFixture() {
    docker->before_destroy = [this](const std::string&) {
      ++hanging;
      released.wait();
    };
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
  test.leases.acquire({}, state_db::WorkspaceTable(test.store).get(leased), wanted);
  test.clock.shift_ms = 9 * kMinute_ms;
  test.reconciler.periodic();
  CHECK(test.state(untouched) == WorkspaceState::ready);
  test.clock.shift_ms = 11 * kMinute_ms;
  test.reconciler.periodic();
  CHECK(test.comes([&] { return test.state(untouched) == WorkspaceState::deleted; }));
  for (const auto id : {written, leased, pinned, used})
    CHECK(test.state(id) == WorkspaceState::ready);
}

TEST_CASE("a sandbox that state.db does not list is ended with its directory") {
  RecoveryFixture test;
  const auto known = test.make_running("known", "lxc");
  backends::SandboxSpec spec;
  spec.name = test.options().backends.name_prefix + "sb_99";
  test.docker->start(spec);
  const std::string directories = test.directory.path() + "/sandboxes/";
  base::make_directories(directories + "sb_99");
  test.reconciler.periodic();
  CHECK(test.comes([&] { return test.docker->list().empty(); }));
  CHECK(!base::path_exists(directories + "sb_99"));
  CHECK(test.lxc->list() == std::vector<std::string>{known.name});
  CHECK(base::path_exists(directories + known.id.str()));
}

TEST_CASE("an interrupted create is undone before the daemon answers, and frees its name") {
  RecoveryFixture test;
  auto wanted = new_workspace(test.store, "cut", 0);
  wanted.backend = "lxc";
  wanted.image = "host";
  const auto cut = state_db::WorkspaceTable(test.store).create(wanted);
  test.storage->make_layer(cut.layer);
  test.reconciler.at_start();
  CHECK(test.state(cut.id) == WorkspaceState::failed);
  CHECK_NOTHROW(test.make_workspace("cut", "lxc"));
  test.reconciler.after_ready();
  CHECK(test.comes([&] { return !base::path_exists(test.storage->layer_path(cut.layer)); }));
}

TEST_CASE("work that state.db does not list is moved aside, and its ids are never used again") {
  RecoveryFixture test;
  const std::string store = test.directory.path();
  test.storage->make_layer({77});
  base::make_directories(store + "/workspaces/ws_88/journal/ex_99");
  base::write_file(store + "/workspaces/ws_88/journal/ex_99/output", "precious");
  test.reconciler.at_start();
  CHECK(!base::path_exists(test.storage->layer_path({77})));
  CHECK(!base::path_exists(store + "/workspaces/ws_88"));
  const auto lost = base::list_directory(test.context.options.lost());
  REQUIRE(lost.size() == 2);
  CHECK(lost.at(0).starts_with("ly_77-"));
  CHECK(base::read_file(test.context.options.lost() + "/" + lost.at(1) + "/journal/ex_99/output") ==
        "precious");
  const auto next = test.make_workspace("next", "lxc");
  CHECK(next.id.value > 88);
  CHECK(next.layer.value > 77);
  CHECK(test.make_dead("later", "lxc").id.value > 99);
}

}  // namespace moorage::workspace
