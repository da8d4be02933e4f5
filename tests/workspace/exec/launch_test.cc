// Launches whose warden does not answer, and pre_stop on them. The backend is a fake one.
#include "workspace/exec/launch.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <thread>

#include "backends/fake_backend.h"
#include "base/os/files.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/context/context_fixture.h"
#include "workspace/context/new_workspace.h"
#include "workspace/context/waiters.h"
#include "workspace/exec/pre_stop.h"

using namespace moorage;
using namespace moorage::workspace;
using state_db::ExecCategory;
using state_db::ExecState;

namespace {

// Reads each request and closes the connection without an answer.
class SilentWarden {
 public:
  explicit SilentWarden(const std::string& path)
      : socket_(base::check(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    base::check(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
    base::check(listen(socket_.get(), 8), "listen");
    thread_ = std::thread([this] { serve(); });
  }
  ~SilentWarden() {
    shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  static constexpr ssize_t kPiece = 64 << 10;
  void serve() {
    for (;;) {
      const base::Fd client(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      std::array<char, kPiece> request{};
      while (read(client.get(), request.data(), request.size()) == kPiece) {
      }
    }
  }
  base::Fd socket_;
  std::thread thread_;
};

struct LaunchFixture : ContextFixture {
  backends::FakeBackend backend{[] {
    backends::BackendOptions options;
    options.name_prefix = "moorage-test-";
    return options;
  }()};
  IncomingPacks incoming{context};
  ExecWatcher watcher{context, incoming};
  ExecLauncher launcher{context, watcher};
  PreStop pre_stop{context, watcher};
  state_db::WorkspaceRow row;
  std::shared_ptr<LiveSandbox> running = std::make_shared<LiveSandbox>();

  explicit LaunchFixture(std::vector<std::string> hook = {}) {
    auto wanted = new_workspace(store, "one");
    wanted.policy.pre_stop = std::move(hook);
    state_db::WorkspaceTable workspaces(store);
    const auto id = workspaces.create(wanted).id;
    workspaces.set_ready(id);
    row = workspaces.get(id);
    state_db::SandboxTable sandboxes(store);
    state_db::NewSandbox sandbox;
    sandbox.workspace = id;
    sandbox.backend = "fake";
    running->sandbox = sandboxes.create(sandbox).id;
    sandboxes.set_running(running->sandbox, {});
    running->workspace = id;
    running->name = "moorage-test-one";
    running->backend = &backend;
    running->endpoint = {directory.path() + "/warden.sock"};
    backends::SandboxSpec spec;
    spec.name = running->name;
    running->init = backend.start(spec).init;  // this process
    context.live.set_running(running);
  }
  ~LaunchFixture() { context.live.clear_running(running->sandbox); }

  // As a verb does: the record, the launch, and what follows a failed one.
  state_db::ExecRow launch() {
    state_db::NewExec record;
    record.workspace = row.id;
    record.sandbox = running->sandbox;
    record.owner_uid = row.owner_uid;
    record.argv = {"job"};
    record.directory = "/workspace";
    record.user = "user";
    state_db::ExecTable table(store);
    const auto exec = table.get(table.create(record).id);
    try {
      launcher.launch(exec, row, *running);
      FAIL("no warden answered, but the launch succeeded");
    } catch (const base::Error& error) {
      launcher.settle_failed_launch(exec, *running, error);
    }
    return table.get(exec.id);
  }
};

}  // namespace

TEST_CASE("a command whose warden is not there is recorded as never started") {
  LaunchFixture test;
  const auto exec = test.launch();
  CHECK(exec.state == ExecState::interrupted);
  CHECK(exec.outcome.category == ExecCategory::not_started);
  CHECK(exec.outcome.error.starts_with("it was never started: "));
  CHECK(test.watcher.take_unconfirmed().empty());
}

TEST_CASE("a command whose warden died during its start stays running until somebody can ask") {
  LaunchFixture test;
  const SilentWarden warden(test.running->endpoint.unix_socket);
  const auto exec = test.launch();
  CHECK(exec.state == ExecState::running);
  const auto unconfirmed = test.watcher.take_unconfirmed();
  REQUIRE(unconfirmed.size() == 1);
  CHECK(unconfirmed.front().exec.id == exec.id);
  CHECK(unconfirmed.front().why.starts_with("it was never started: "));
  CHECK(test.watcher.take_unconfirmed().empty());
}

TEST_CASE("a second launch of one record is refused: a command runs once or not at all") {
  LaunchFixture test;
  const auto exec = test.launch();
  CHECK_THROWS_AS(test.launcher.launch(exec, test.row, *test.running), base::Error);
}

TEST_CASE("a stop without a hook or without a sandbox runs none") {
  LaunchFixture no_hook;
  CHECK(no_hook.pre_stop.run(no_hook.row).empty());
  LaunchFixture no_sandbox({"save"});
  no_sandbox.context.live.clear_running(no_sandbox.running->sandbox);
  CHECK(no_sandbox.pre_stop.run(no_sandbox.row).empty());
  CHECK(state_db::ExecTable(no_sandbox.store).list().empty());
}

TEST_CASE("a hook that could not be started is reported, and the stop goes on") {
  LaunchFixture test({"save"});
  const std::string trouble = test.pre_stop.run(test.row);
  CHECK(trouble.starts_with("pre_stop ex_1 failed: interrupted, it was never started: "));
}

TEST_CASE("a stop waits for its hook, and finds it again until the sandbox is forgotten") {
  LaunchFixture test({"save"});
  const SilentWarden warden(test.running->endpoint.unix_socket);
  const auto hook_of = [&] {
    try {
      test.pre_stop.run(test.row);
    } catch (const Waiting& waiting) {
      return waiting.execs.front();
    }
    return base::ExecId{};
  };
  const auto hook = hook_of();
  REQUIRE(hook);
  CHECK(hook_of() == hook);
  test.watcher.settle_exec(state_db::ExecTable(test.store).get(hook), ExecCategory::lost, "gone");
  CHECK(test.pre_stop.run(test.row) == "pre_stop " + hook.str() + " failed: interrupted, gone");
  test.pre_stop.forget(test.running->sandbox);
  const auto next = hook_of();
  CHECK(next);
  CHECK(next != hook);
}
