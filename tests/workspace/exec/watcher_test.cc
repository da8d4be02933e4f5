#include "workspace/exec/watcher.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "base/os/files.h"
#include "base/wire/journal.h"
#include "state_db/tables/execs.h"
#include "workspace/access/placement_fixture.h"

using namespace moorage;
using namespace moorage::workspace;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kGreedy = 61001;
constexpr uint32_t kOther = 61002;
constexpr int kMoreThanThreads = 8;

struct WatcherFixture : PlacementFixture {
  // A command of that user in its own workspace.
  state_db::ExecRow make_one(const std::string& workspace, uint32_t uid) {
    const auto row = make_workspace(workspace, "lxc");
    state_db::SandboxTable table_of_sandboxes(store);
    state_db::NewSandbox sandbox;
    sandbox.workspace = row.id;
    sandbox.backend = "lxc";
    sandbox.image = "host";
    state_db::NewExec request;
    request.workspace = row.id;
    request.sandbox = table_of_sandboxes.create(sandbox).id;
    table_of_sandboxes.set_running(request.sandbox, {});
    request.owner_uid = uid;
    request.argv = {"true"};
    request.user = "user";
    state_db::ExecTable table(store);
    return table.get(table.create(request).id);
  }
  void end_one(const std::string& workspace, uint32_t uid) {
    watcher.settle_exec(make_one(workspace, uid), state_db::ExecCategory::lost, "");
  }
  void write_end(const state_db::ExecRow& exec, const std::string& payload) {
    const std::string place = journal_directory(context.options, exec.request.workspace, exec.id);
    base::make_directories(place);
    const auto head = base::encode_frame_header(
        {base::FrameKind::end, static_cast<uint32_t>(payload.size()), 1, 0}, payload);
    base::write_file(place + "/output", std::string(head.data(), head.size()) + payload, 0600);
  }
};

}  // namespace

TEST_CASE("a slow end of one user's commands does not delay reports of another user's") {
  std::promise<void> release;
  std::promise<void> told;
  const auto released = release.get_future().share();
  WatcherFixture test;
  struct : ExecListener {
    void exec_ended(const state_db::ExecRow& exec) override { ended(exec); }
    std::function<void(const state_db::ExecRow&)> ended;
  } slow;
  slow.ended = [&, released](const state_db::ExecRow& exec) {
    if (exec.request.owner_uid == kGreedy) return released.wait();
    told.set_value();
  };
  const auto listens = test.watcher.listen(slow);
  for (int n = 0; n < kMoreThanThreads; ++n) test.end_one("a-" + std::to_string(n), kGreedy);
  test.end_one("b", kOther);
  CHECK(told.get_future().wait_for(20s) == std::future_status::ready);
  release.set_value();
}

TEST_CASE("a failing disk judge does not change the end of a command") {
  struct FailingJudge : ExecListener {
    bool suspects_disk(const state_db::ExecRow&) override { return suspects || fail(); }
    std::optional<std::string> judge_disk(const state_db::ExecRow&) override {
      return std::to_string(fail());
    }
    bool fail() {
      asked = true;
      throw base::Error(base::Code::internal, "the disk does not answer");
    }
    std::atomic<bool> asked = false;
    bool suspects = false;
  } judge;
  WatcherFixture test;
  judge.suspects = GENERATE(true, false);
  const auto listens = test.watcher.listen(judge);
  const auto exec = test.make_one("judged", kOther);
  test.write_end(exec, R"({"kind": "exited", "code": 3})");
  test.watcher.settle_exec(exec, state_db::ExecCategory::lost, "");
  // The second question runs on a pool.
  auto ended = state_db::ExecTable(test.store).get(exec.id);
  for (int n = 0; n < 2000 && ended.state == state_db::ExecState::running; ++n) {
    std::this_thread::sleep_for(10ms);
    ended = state_db::ExecTable(test.store).get(exec.id);
  }
  CHECK(judge.asked);
  CHECK(ended.state == state_db::ExecState::exited);
  CHECK(ended.outcome.exit_code == 3);
}

TEST_CASE("a death that meets a busy workspace is reported again, and to nobody after its handle") {
  struct Busy : ExecListener {
    bool sandbox_died(base::WorkspaceId, base::SandboxId) override {
      if (++calls == 2) heard.set_value();
      return calls == 2;
    }
    std::atomic<int> calls = 0;
    std::promise<void> heard;
  } busy;
  struct Gone : ExecListener {
    bool sandbox_died(base::WorkspaceId, base::SandboxId) override { return called = true; }
    std::atomic<bool> called = false;
  } gone;
  WatcherFixture test;
  const auto listens = test.watcher.listen(busy);
  test.watcher.listen(gone).reset();
  LiveSandbox dead;
  dead.workspace = base::WorkspaceId{1000};
  dead.sandbox = base::SandboxId{1000};
  dead.init = {getpid(), 1};  // another start time: that process has ended
  // The fixture's own verbs do not know this sandbox, and say so in the log.
  test.watcher.watch_sandbox(dead);
  CHECK(busy.heard.get_future().wait_for(20s) == std::future_status::ready);
  CHECK(busy.calls == 2);
  CHECK_FALSE(gone.called);
}
