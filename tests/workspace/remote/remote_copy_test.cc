// Verbs on a workspace whose commands run on another machine, with a link that a test plays.
#include "workspace/remote/remote_copy.h"

#include <catch2/catch.hpp>

#include "thrown_code.h"
#include "workspace/remote/fake_link.h"
#include "workspace/remote/remote_fixture.h"

using namespace moorage;
using namespace moorage::workspace;
using namespace std::chrono_literals;
using Remote = RemoteFixture::Remote;

namespace {

struct LinkedFixture : RemoteFixture {
  FakeLink link{directory.path()};
  Remote remote = linked();

  Remote linked() {
    lxc->socket = link.path();
    return make_running("a");
  }
  std::optional<RemoteView> remote_view() { return Services::remote.view(remote.row.id); }
  size_t asked(const std::string& path) {
    const auto all = link.requests();
    return static_cast<size_t>(std::count(all.begin(), all.end(), path));
  }
  std::string note() {
    return context.options.sandbox_directory(remote.sandbox.id.str()) + "/unsent";
  }
  // The file API's write of /workspace/f.
  void write_file(const std::string& bytes) {
    const Caller owner;
    const auto lease = files.open(owner, "a", Right::write);
    auto change = files.change(owner, lease, {"f"});
    base::write_file(remote.tree + "/f", bytes);
    files.finish(std::move(change));
  }
};

}  // namespace

TEST_CASE("files are brought up to date before they are read") {
  LinkedFixture test;
  test.link.on_sync = [&] { test.remote.send_file(1, "tree/a", "newest"); };
  Caller owner;
  owner.notice = std::make_shared<std::string>();
  const auto lease = test.files.open(owner, "a", Right::read);
  CHECK(test.remote.read("a") == "newest");
  CHECK(owner.notice->empty());
}

TEST_CASE("with the machine out of reach, files are read as they are here, with their age") {
  LinkedFixture test;
  test.link.cut("ssh: no route to host");
  Caller owner;
  owner.notice = std::make_shared<std::string>();
  const auto lease = test.files.open(owner, "a", Right::read);
  CHECK(*owner.notice == "the files here are 12 s behind the other machine: ssh: no route to host");
  const auto view = test.remote_view();
  REQUIRE(view);
  CHECK_FALSE(view->connected);
  CHECK(view->behind_ms == 12'345);
  CHECK(view->reason == "ssh: no route to host");
}

TEST_CASE("a link that does not answer is not connected, and its age is not known") {
  LinkedFixture test;
  LiveSandbox running = *test.live.running(test.remote.row.id);
  running.endpoint = {"/nonexistent/warden.sock"};
  test.live.set_running(std::make_shared<const LiveSandbox>(running));
  const auto view = test.remote_view();
  REQUIRE(view);
  CHECK_FALSE(view->connected);
  CHECK_FALSE(view->behind_ms);
  CHECK_THAT(view->reason, Catch::Contains("cannot be reached"));
  CHECK_THAT(test.Services::remote.refresh(test.remote.row.id),
             Catch::StartsWith("the files here may be behind the other machine: "));
}

TEST_CASE("a sandbox on this machine has no link to query") {
  LinkedFixture test;
  LiveSandbox running = *test.live.running(test.remote.row.id);
  running.remote = false;
  test.live.set_running(std::make_shared<const LiveSandbox>(running));
  CHECK(test.Services::remote.refresh(test.remote.row.id).empty());
  CHECK_FALSE(test.remote_view());
  test.write_file("local");
  CHECK(test.link.requests().empty());
}

TEST_CASE("a change of a file is answered once the machine has it") {
  LinkedFixture test;
  std::string there;
  test.link.on_changed = [&](const std::string& body) {
    CHECK(body == R"({"paths":["/workspace/f"]})");
    there = test.remote.read("f").value_or("");
  };
  test.write_file("mine");
  CHECK(there == "mine");
  CHECK_FALSE(base::path_exists(test.note()));
  CHECK(test.asked("/moorage/sync") == 0);  // no command runs that could change it meanwhile
}

TEST_CASE("changes that arrived before a write are applied before it") {
  LinkedFixture test;
  test.remote.send_file(1, "tree/f", "theirs");
  test.write_file("mine");
  CHECK(test.remote.read("f") == "mine");
  CHECK(test.remote.packs() == 0);
}

TEST_CASE("a command's change that crosses a write leaves both machines with the same file") {
  LinkedFixture test;
  test.make_exec(test.remote);
  std::vector<std::string> there;
  test.link.on_changed = [&](const std::string&) {
    there.push_back(test.remote.read("f").value_or(""));
  };
  test.link.on_sync = [&] { test.remote.send_file(1, "tree/f", "theirs"); };
  test.write_file("mine");
  CHECK(test.remote.read("f") == "theirs");
  CHECK(there == std::vector<std::string>{"mine", "theirs"});
}

TEST_CASE("with the machine out of reach, a change is refused before anything is written") {
  LinkedFixture test;
  test.link.cut("ssh: no route to host");
  CHECK(code_thrown_by([&] { test.write_file("mine"); }) == Code::unavailable);
  CHECK_FALSE(test.remote.read("f"));
  CHECK_FALSE(base::path_exists(test.note()));
}

TEST_CASE("a change whose machine is lost meanwhile is sent when it is back") {
  LinkedFixture test;
  const Caller owner;
  {
    const auto lease = test.files.open(owner, "a", Right::write);
    auto change = test.files.change(owner, lease, {"f"});
    test.link.cut("the stream broke");
    base::write_file(test.remote.tree + "/f", "mine");
    CHECK(code_thrown_by([&] { test.files.finish(std::move(change)); }) == Code::unavailable);
  }
  CHECK(base::path_exists(test.note()));
  test.link.cut("");
  CHECK(test.comes([&] {
    test.Services::remote.tick();
    return !base::path_exists(test.note());
  }));
  CHECK(test.asked("/moorage/changed") >= 2);
}

TEST_CASE("a path over a link is sent by the file's own name, and the link with it") {
  LinkedFixture test;
  base::make_directories(test.remote.tree + "/real", 0755);
  base::write_file(test.remote.tree + "/real/f", "old");
  REQUIRE(symlink("real", (test.remote.tree + "/way").c_str()) == 0);
  REQUIRE(symlink("f", (test.remote.tree + "/real/last").c_str()) == 0);
  std::string sent;
  test.link.on_changed = [&](const std::string& body) { sent = body; };
  const Caller owner;
  const auto lease = test.files.open(owner, "a", Right::write);
  test.files.finish(test.files.change(owner, lease, {"way/last"}));
  CHECK(sent == R"({"paths":["/workspace/real/f","/workspace/real/last"]})");
}

TEST_CASE("nothing is stopped while its last changes cannot be fetched") {
  LinkedFixture test;
  const auto exec = test.make_exec(test.remote);
  test.link.cut("ssh: no route to host");
  const auto stop = [&] { test.start_stop.stop_sandbox(test.remote.row, "the test"); };
  CHECK(code_thrown_by(stop) == Code::unavailable);
  CHECK(test.now(test.remote.sandbox).state == state_db::SandboxState::running);
  CHECK(test.live.running(test.remote.row.id));
  CHECK(test.now(exec).state == state_db::ExecState::running);
  CHECK(test.lxc->inspect(test.remote.sandbox.name).state == backends::SandboxState::running);
}

TEST_CASE("a stop whose last sync fails leaves the sandbox running") {
  LinkedFixture test;
  test.lxc->before_stop = [](const std::string&) {
    throw Error(Code::unavailable, "the stream broke");
  };
  const auto stop = [&] { test.start_stop.stop_sandbox(test.remote.row, "the test"); };
  CHECK(code_thrown_by(stop) == Code::unavailable);
  CHECK(test.now(test.remote.sandbox).state == state_db::SandboxState::running);
  CHECK(test.live.running(test.remote.row.id));
  test.lxc->before_stop = {};
  stop();
  CHECK(test.now(test.remote.sandbox).state == state_db::SandboxState::destroyed);
}

TEST_CASE("a stop by force gives up what only the other machine has") {
  LinkedFixture test;
  test.remote.send_file(1, "tree/a", "arrived");
  test.link.cut("ssh: no route to host");
  test.lxc->before_stop = [](const std::string&) {
    throw Error(Code::unavailable, "the stream broke");
  };
  test.start_stop.stop(Caller{}, "a", {.busy = {.force = true}});
  CHECK(test.now(test.remote.sandbox).state == state_db::SandboxState::destroyed);
  CHECK(test.remote.read("a") == "arrived");
}

TEST_CASE("a workspace is deleted without its machine only by force") {
  LinkedFixture test;
  test.link.cut("ssh: no route to host");
  test.lxc->before_stop = [](const std::string&) {
    throw Error(Code::unavailable, "the stream broke");
  };
  CHECK(code_thrown_by([&] { test.deletion.remove(Caller{}, "a", {}); }) == Code::unavailable);
  state_db::WorkspaceTable table(test.store);
  CHECK(table.get(test.remote.row.id).state == state_db::WorkspaceState::ready);
  test.deletion.remove(Caller{}, "a", {.force = true});
  CHECK(table.get(test.remote.row.id).state == state_db::WorkspaceState::deleted);
}
