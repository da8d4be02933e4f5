#include "workspace/exec_watcher.h"

#include <catch2/catch.hpp>
#include <future>

#include "placement_fixture.h"
#include "state_db/execs.h"

using namespace moorage;
using namespace moorage::workspace;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kGreedy = 61001;
constexpr uint32_t kOther = 61002;
constexpr int kMoreThanThreads = 8;

struct WatcherFixture : PlacementFixture {
  // A command of that user in a workspace of its own, and its end.
  void end_one(const std::string& workspace, uint32_t uid) {
    const auto row = make_workspace(workspace, "lxc");
    state_db::Sandboxes sandboxes(store);
    state_db::NewSandbox sandbox;
    sandbox.workspace = row.id;
    sandbox.backend = "lxc";
    sandbox.image = "host";
    state_db::ExecRequest request;
    request.workspace = row.id;
    request.sandbox = sandboxes.create(sandbox).id;
    sandboxes.set_running(request.sandbox, {});
    request.owner_uid = uid;
    request.argv = {"true"};
    request.user = "user";
    state_db::Execs table(store);
    watcher->settle_exec(table.get(table.create(request).id), state_db::ExecCategory::lost, "");
  }
};

}  // namespace

TEST_CASE("what the ends of one user's commands wait for keeps no other's from being told") {
  std::promise<void> release;
  std::promise<void> told;
  const auto released = release.get_future().share();
  WatcherFixture test;
  test.watcher->on_end([&, released](const state_db::ExecRow& exec) {
    if (exec.request.owner_uid == kGreedy) return released.wait();
    told.set_value();
  });
  for (int n = 0; n < kMoreThanThreads; ++n) test.end_one("a-" + std::to_string(n), kGreedy);
  test.end_one("b", kOther);
  CHECK(told.get_future().wait_for(20s) == std::future_status::ready);
  release.set_value();
}
