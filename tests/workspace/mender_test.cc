#include "workspace/mender.h"

#include <catch2/catch.hpp>
#include <future>

#include "../patience.h"
#include "base/error.h"
#include "context_fixture.h"
#include "state_db/integrity.h"
#include "state_db/repositories.h"
#include "state_db/workspaces.h"
#include "workspace/birth.h"

namespace moorage::workspace {
namespace {

using namespace std::chrono_literals;
using state_db::IntegrityState;

struct MenderFixture : ContextFixture {
  base::WorkspaceId make(const std::string& name) {
    state_db::NewWorkspace wanted;
    wanted.name = name;
    wanted.owner_uid = 1000;
    wanted.repository =
        state_db::Repositories(store).find_or_create({"https://x/a", "", "a"}).first;
    wanted.base_commit = std::string(40, 'a');
    const auto made = state_db::Workspaces(store).create(wanted);
    state_db::Workspaces(store).set_ready(made.id);
    return made.id;
  }
  state_db::IntegrityRow integrity(base::WorkspaceId id) {
    return state_db::Integrity(store).get(id);
  }
};

}  // namespace

TEST_CASE("a workspace whose mending hangs keeps its lock and says so, and all others are mended") {
  MenderFixture test;
  const auto stuck = test.make("stuck");
  const auto broken = test.make("broken");
  const auto good = test.make("good");
  std::promise<void> release;
  std::future<void> released = release.get_future();
  bool mended = false;
  Mender mender(test.context, 50ms);
  mender.add(stuck, [&] { released.wait(); });
  mender.add(broken, [] { throw base::Error(base::Code::io, "the disk is gone"); });
  mender.add(good, [&] { mended = true; });
  CHECK_THROWS_WITH(test.locks.lock(good.str(), "start", 0ms), Catch::Contains("mending"));
  mender.start();
  REQUIRE(mender.wait(10s * tests::patience()));
  CHECK(mended);
  CHECK(test.integrity(stuck).state == IntegrityState::needs_repair);
  CHECK(test.integrity(broken).state == IntegrityState::needs_repair);
  CHECK(test.integrity(broken).reason == "the disk is gone");
  CHECK(test.integrity(good).state == IntegrityState::unknown);
  CHECK_NOTHROW(test.locks.lock(good.str(), "start", 0ms));
  CHECK_NOTHROW(test.locks.lock(broken.str(), "start", 0ms));
  CHECK_THROWS_WITH(test.locks.lock(stuck.str(), "start", 0ms), Catch::Contains("mending"));
  release.set_value();
  CHECK_NOTHROW(test.locks.lock(stuck.str(), "start", 10s * tests::patience()));
  CHECK(test.integrity(stuck).state == IntegrityState::intact);
}

TEST_CASE("who stops mending hears whether anything is still at work") {
  MenderFixture test;
  std::promise<void> release;
  std::future<void> released = release.get_future();
  std::promise<void> begun;
  bool mended = false;
  Mender idle(test.context, 10ms);
  idle.add(test.make("waiting"), [&] { mended = true; });
  CHECK(idle.stop(0ms));  // nothing began
  Mender later(test.context, 10s * tests::patience());
  later.add(test.make("slow"), [&] {
    begun.set_value();
    released.wait();
  });
  later.add_last([&] { mended = true; });
  later.start();
  begun.get_future().wait();
  CHECK_FALSE(later.stop(10ms));
  release.set_value();
  CHECK(later.stop(10s * tests::patience()));
  CHECK_FALSE(mended);  // left for the next start
}

TEST_CASE("nothing is mended in a workspace that was sealed") {
  MenderFixture test;
  const auto id = test.make("lives");
  const auto row = state_db::Workspaces(test.store).get(id);
  test.storage->make_layer(row.layer);
  REQUIRE(needs_mending(test.context, row));  // there is no .git at all
  state_db::Integrity(test.store).set(id, IntegrityState::intact);
  state_db::Integrity(test.store).set_seal(id, "sealed");
  CHECK_FALSE(needs_mending(test.context, row));
}

}  // namespace moorage::workspace
