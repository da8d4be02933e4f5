#include "workspace/recovery/repairs.h"

#include <catch2/catch.hpp>
#include <future>

#include "base/error.h"
#include "patience.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/workspaces.h"
#include "workspace/chain/initial_files.h"
#include "workspace/context/context_fixture.h"
#include "workspace/context/new_workspace.h"

namespace moorage::workspace {
namespace {

using namespace std::chrono_literals;
using state_db::IntegrityState;

struct MenderFixture : ContextFixture {
  base::WorkspaceId begin(const std::string& name) {
    return state_db::WorkspaceTable(store).create(new_workspace(store, name)).id;
  }
  base::WorkspaceId make(const std::string& name) {
    const auto id = begin(name);
    state_db::WorkspaceTable(store).set_ready(id);
    storage->make_layer(row(id).layer);
    return id;
  }
  state_db::WorkspaceRow row(base::WorkspaceId id) {
    return state_db::WorkspaceTable(store).get(id);
  }
  std::string upper(base::WorkspaceId id) {
    return storage->layer_path(row(id).layer) + "/tree/upper";
  }
  std::string git(base::WorkspaceId id) { return upper(id) + "/.git"; }
  void write_git(base::WorkspaceId id) {
    base::make_directories(git(id));
    base::write_file(git(id) + "/HEAD", "ref: refs/heads/main\n");
  }
  void remove_git(base::WorkspaceId id) { base::remove_tree(git(id)); }
  bool needs_repair(base::WorkspaceId id) { return workspace::needs_repair(context, row(id)); }
  state_db::IntegrityRow integrity(base::WorkspaceId id) {
    return state_db::IntegrityTable(store).get(id);
  }
};

}  // namespace

TEST_CASE("a workspace whose repair hangs keeps its lock and reports it; all others are repaired") {
  MenderFixture test;
  const auto stuck = test.make("stuck");
  const auto broken = test.make("broken");
  const auto good = test.make("good");
  std::promise<void> release;
  std::future<void> released = release.get_future();
  bool repaired = false;
  Repairs mender(test.context, 50ms);
  mender.add(stuck, [&] { released.wait(); });
  mender.add(broken, [] { throw base::Error(base::Code::io, "the disk is gone"); });
  mender.add(good, [&] { repaired = true; });
  CHECK_THROWS_WITH(test.locks.lock(good.str(), "start", 0ms), Catch::Contains("repair"));
  mender.start();
  REQUIRE(mender.wait(10s * tests::patience()));
  CHECK(repaired);
  CHECK(test.integrity(stuck).state == IntegrityState::needs_repair);
  CHECK(test.integrity(broken).state == IntegrityState::needs_repair);
  CHECK(test.integrity(broken).reason == "the disk is gone");
  CHECK(test.integrity(good).state == IntegrityState::unknown);
  CHECK_NOTHROW(test.locks.lock(good.str(), "start", 0ms));
  CHECK_NOTHROW(test.locks.lock(broken.str(), "start", 0ms));
  CHECK_THROWS_WITH(test.locks.lock(stuck.str(), "start", 0ms), Catch::Contains("repair"));
  release.set_value();
  CHECK_NOTHROW(test.locks.lock(stuck.str(), "start", 10s * tests::patience()));
  CHECK(test.integrity(stuck).state == IntegrityState::intact);
}

TEST_CASE("all steps of a workspace run, in order, even after a failure") {
  MenderFixture test;
  const auto id = test.make("twice");
  std::string done;
  Repairs mender(test.context);
  mender.add(id, [&] {
    done += "first ";
    throw base::Error(base::Code::io, "the disk is gone");
  });
  mender.add(test.make("other"), [&] { done += "other "; });
  mender.add(id, [&] { done += "second "; });
  mender.start();
  REQUIRE(mender.wait(10s * tests::patience()));
  CHECK(done == "first second other ");
  CHECK(test.integrity(id).state == IntegrityState::needs_repair);
  CHECK_NOTHROW(test.locks.lock(id.str(), "start", 0ms));
}

TEST_CASE("a slow repair restores the earlier integrity state of the files") {
  MenderFixture test;
  const auto id = test.make("slow");
  state_db::IntegrityTable(test.store).set(id, IntegrityState::changed_outside, "by hand");
  std::promise<void> release;
  std::future<void> released = release.get_future();
  Repairs mender(test.context, 10ms);
  mender.add(id, [&] { released.wait(); });
  mender.start();
  REQUIRE(mender.wait(10s * tests::patience()));
  CHECK(test.integrity(id).state == IntegrityState::needs_repair);
  release.set_value();
  CHECK_NOTHROW(test.locks.lock(id.str(), "start", 10s * tests::patience()));
  CHECK(test.integrity(id).state == IntegrityState::changed_outside);
  CHECK(test.integrity(id).reason == "by hand");
}

TEST_CASE("stop() reports whether a repair is still running") {
  MenderFixture test;
  std::promise<void> release;
  std::future<void> released = release.get_future();
  std::promise<void> begun;
  bool repaired = false;
  Repairs idle(test.context, 10ms);
  idle.add(test.make("waiting"), [&] { repaired = true; });
  CHECK(idle.stop(0ms));  // nothing has begun
  Repairs later(test.context, 10s * tests::patience());
  later.add(test.make("slow"), [&] {
    begun.set_value();
    released.wait();
  });
  later.add_last([&] { repaired = true; });
  later.start();
  begun.get_future().wait();
  CHECK_FALSE(later.stop(10ms));
  release.set_value();
  CHECK(later.stop(10s * tests::patience()));
  CHECK_FALSE(repaired);  // left for the next start
}

TEST_CASE("a workspace whose files were synced after its create is not repaired, by any clock") {
  MenderFixture test;
  const auto synced = test.make("synced");
  test.write_git(synced);
  CHECK_THROWS(sync_all_initial_files(
      test.context, [] { throw base::Error(base::Code::io, "the disk is gone"); }));
  test.remove_git(synced);
  CHECK(test.needs_repair(synced));
  test.write_git(synced);
  sync_all_initial_files(test.context, [] {});
  test.remove_git(synced);  // as its agent might
  CHECK_FALSE(test.needs_repair(synced));

  // A create in progress keeps later ones unrecorded, as files lost in a power cut do.
  const auto making = test.begin("being made");
  const auto after = test.make("after");
  for (const auto id : {making, after}) test.write_git(id);
  sync_all_initial_files(test.context, [] {});
  sync_all_initial_files(test.context,
                         [&] { state_db::WorkspaceTable(test.store).set_ready(making); });
  test.remove_git(after);
  base::remove_tree(test.upper(making));
  base::write_file(test.upper(making), "no directory");
  sync_all_initial_files(test.context, [] {});
  base::remove_tree(test.upper(making));
  test.write_git(making);
  CHECK(test.needs_repair(after));
  sync_all_initial_files(test.context, [] {});
  CHECK(test.needs_repair(after));
  test.write_git(after);
  sync_all_initial_files(test.context, [] {});
  for (const auto id : {making, after}) {
    test.remove_git(id);
    CHECK_FALSE(test.needs_repair(id));
  }
}

TEST_CASE("a sealed workspace is not repaired") {
  MenderFixture test;
  const auto id = test.make("lives");
  REQUIRE(test.needs_repair(id));  // there is no .git at all
  state_db::IntegrityTable(test.store).set(id, IntegrityState::intact);
  state_db::IntegrityTable(test.store).set_seal(id, "sealed");
  CHECK_FALSE(test.needs_repair(id));
}

}  // namespace moorage::workspace
