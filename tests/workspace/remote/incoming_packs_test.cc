// What another machine sends becomes the workspace's files: in order, once, or not at all.
#include "workspace/remote/incoming_packs.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/os/open_beneath.h"
#include "thrown_code.h"
#include "workspace/remote/remote_fixture.h"
#include "workspace/repositories/upstream.h"

using namespace moorage;
using namespace moorage::workspace;
using namespace std::chrono_literals;
using packs::NodeType;
using packs::PackWriter;
using Remote = RemoteFixture::Remote;

namespace {

constexpr const char* kSucceeded = R"({"kind": "exited", "code": 0})";

state_db::WorkspaceLimits with_disk(uint64_t bytes) { return {1ULL << 30, 1, 100, bytes, 0}; }

// A pack of an entry that no sandbox can make.
struct Hostile {
  std::string what;
  std::function<void(PackWriter&)> fill;
};

std::vector<Hostile> hostile_packs() {
  return {
      {"a path upwards", [](PackWriter& pack) { put_file(pack, "tree/../../../victim", "bad"); }},
      {"an absolute path", [](PackWriter& pack) { put_file(pack, "/etc/victim", "bad"); }},
      {"a device",
       [](PackWriter& pack) { pack.entry(node("tree/null", NodeType::character_device)); }},
      {"an owner of another sandbox",
       [](PackWriter& pack) {
         auto directory = node("tree/theirs", NodeType::directory);
         directory.uid = 65536;
         pack.entry(directory);
       }},
      {"more data than its size", [](PackWriter& pack) {
         auto file = node("tree/large", NodeType::file);
         file.size = 3;
         pack.entry(file);
         pack.piece(0, "four");
         pack.end_pieces();
       }}};
}

}  // namespace

TEST_CASE("packs are applied in order, and their files belong to the sandbox's ids") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  remote.send(1, [](PackWriter& pack) {
    put_file(pack, "tree/a", "one");
    put_file(pack, "tree/b", "one");
    put_file(pack, "home/h", "home");
  });
  remote.send(2, [](PackWriter& pack) {
    put_file(pack, "tree/a", "two");
    pack.removal("tree/b");
  });
  remote.send_file(10, "tree/a", "ten");
  test.apply(remote);
  CHECK(remote.read("a") == "ten");
  CHECK_FALSE(remote.read("b"));
  CHECK(base::read_file(remote.home + "/h") == "home");
  struct stat status {};
  REQUIRE(stat((remote.tree + "/a").c_str(), &status) == 0);
  CHECK(status.st_uid == RemoteFixture::kFirstId + layers::kUser);
  CHECK(remote.packs() == 0);
}

TEST_CASE("a pack that comes again under its number is applied again, which changes nothing") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  for (int n = 0; n < 2; ++n) {
    remote.send_file(1, "tree/a", "one");
    test.apply(remote);
    CHECK(remote.read("a") == "one");
  }
  CHECK(base::path_exists(remote.path(1, ".applied")));
}

TEST_CASE("an applied pack is removed once its files are on the disk, without a request") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  remote.send_file(1, "tree/a", "one");
  CHECK(test.comes([&] { return remote.read("a") == "one"; }));
  CHECK(test.comes([&] { return base::directory_is_empty(remote.incoming); }));
}

TEST_CASE("names that are not packs are left alone") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  for (const char* name : {"part", "last", "01.pack", "-1.pack", "x.pack", ".pack", "1.pack.old"})
    base::write_file(remote.incoming + "/" + name, "not a pack");
  CHECK_NOTHROW(test.apply(remote));
  CHECK(base::list_directory(remote.incoming).size() == 7);
}

TEST_CASE("a hostile pack is refused, and its sandbox ends as lost with that reason") {
  RemoteFixture test;
  base::write_file(test.directory.path() + "/victim", "precious");
  for (const Hostile& hostile : hostile_packs()) {
    DYNAMIC_SECTION(hostile.what) {
      const Remote remote = test.make_running("a");
      const auto exec = test.make_exec(remote);
      test.watcher.watch_exec(exec, false);
      remote.send_file(1, "tree/before", "good");
      remote.send(2, hostile.fill);
      remote.send_file(3, "tree/after", "later");
      test.write_end(exec, kSucceeded);
      CHECK(test.comes(
          [&] { return test.now(remote.sandbox).state == state_db::SandboxState::destroyed; }));
      CHECK(base::read_file(test.directory.path() + "/victim") == "precious");
      CHECK(remote.read("before") == "good");
      CHECK_FALSE(remote.read("after"));
      CHECK_THAT(test.loss_of(remote), Catch::Contains("the other machine sent"));
      const auto ended = test.now(exec);
      CHECK(ended.state == state_db::ExecState::interrupted);
      CHECK(ended.outcome.category == state_db::ExecCategory::lost);
      CHECK_THAT(ended.outcome.error, Catch::Contains("the other machine sent"));
      CHECK(base::list_directory(remote.refused) ==
            std::vector<std::string>{remote.sandbox.id.str() + "-2.pack"});
      CHECK(test.has_event("sandbox.files_refused"));
    }
  }
}

TEST_CASE("a damaged pack is refused before any of it is applied") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  remote.send(1, [](PackWriter& pack) {
    put_file(pack, "tree/a", "one");
    put_file(pack, "tree/b", std::string(100'000, 'b'));
  });
  std::string bytes = base::read_file(remote.path(1));
  bytes[bytes.size() / 2] ^= 1;
  base::write_file(remote.path(1), bytes);
  CHECK(code_thrown_by([&] { test.apply(remote); }) == Code::corrupted);
  CHECK_FALSE(remote.read("a"));
  remote.send_file(1, "tree/a", "again");
  CHECK(code_thrown_by([&] { test.apply(remote); }) == Code::corrupted);  // it stays refused
}

TEST_CASE("refused packs are bounded in number and bytes, and the newest are kept") {
  RemoteFixture test;
  const std::string refused = test.directory.path() + "/refused";
  const std::string sandbox = test.directory.path() + "/one";
  base::make_directories(sandbox + "/incoming");
  const IncomingDirectory incoming(sandbox);
  const auto keep = [&](uint64_t number, uint64_t bytes) {
    const std::string path = sandbox + "/incoming/" + std::to_string(number) + ".pack";
    base::write_file(path, "pack");
    REQUIRE(truncate(path.c_str(), static_cast<off_t>(bytes)) == 0);
    return incoming.keep(number, refused, std::to_string(number));
  };
  for (uint64_t number = 1; number <= kMostRefused + 2; ++number) CHECK(keep(number, 10));
  CHECK(base::list_directory(refused).size() == kMostRefused);
  CHECK_FALSE(base::path_exists(refused + "/2"));
  CHECK(base::path_exists(refused + "/3"));
  CHECK(keep(20, kMostRefusedBytes - 5));
  CHECK(base::list_directory(refused) == std::vector<std::string>{"20"});
  CHECK_FALSE(keep(21, kMostRefusedBytes + 1));
  CHECK(base::list_directory(refused) == std::vector<std::string>{"20"});
  CHECK(incoming.packs().empty());
}

TEST_CASE("a pack without room waits, says why, and is applied once there is room") {
  RemoteFixture test;
  const Remote remote = test.make_remote("a", with_disk(1 << 20));
  test.run(remote);
  const auto exec = test.make_exec(remote);
  test.watcher.watch_exec(exec, false);
  const std::string large(3 << 20, 'x');
  remote.send_file(1, "tree/large", large);
  remote.send_file(2, "tree/small", "small");
  test.write_end(exec, kSucceeded);
  CHECK(test.comes([&] { return !test.incoming.trouble(remote.sandbox.id).empty(); }));
  CHECK_THAT(test.incoming.trouble(remote.sandbox.id), Catch::Contains("disk limit of a"));
  CHECK(code_thrown_by([&] { test.apply(remote); }) == Code::resource_exhausted);
  CHECK(remote.packs() == 2);
  CHECK_FALSE(remote.read("small"));
  CHECK(test.has_event("sandbox.files_wait"));
  CHECK(test.now(exec).state == state_db::ExecState::running);
  CHECK(test.now(remote.sandbox).state == state_db::SandboxState::running);

  state_db::WorkspaceTable table(test.store);
  const auto row = table.get(remote.row.id);
  auto policy = row.policy;
  policy.limits.disk_bytes = 1 << 30;
  table.set_policy(row.id, {.from = row.policy, .to = policy, .by = "the test"});
  test.apply(remote);
  CHECK(remote.read("large") == large);
  CHECK(remote.read("small") == "small");
  CHECK(test.incoming.trouble(remote.sandbox.id).empty());
  CHECK(test.comes([&] { return test.now(exec).state == state_db::ExecState::exited; }));
}

TEST_CASE("names without data leave the reserve of the disk, and removals need no room") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  remote.send(1, [](PackWriter& pack) {
    for (int n = 0; n < 5'000; ++n) pack.entry(node("tree/" + std::to_string(n), NodeType::fifo));
  });
  test.context.options.min_free_bytes = UINT64_MAX;
  CHECK(code_thrown_by([&] { test.apply(remote); }) == Code::resource_exhausted);
  CHECK_THAT(test.incoming.trouble(remote.sandbox.id), Catch::Contains("nearly full"));
  CHECK(base::list_directory(remote.tree).size() < 1'100);
  test.context.options.min_free_bytes = 1;
  test.apply(remote);
  CHECK(base::list_directory(remote.tree).size() == 5'000);
  test.context.options.min_free_bytes = UINT64_MAX;
  remote.send(2, [](PackWriter& pack) {
    for (int n = 0; n < 5'000; ++n) pack.removal("tree/" + std::to_string(n));
  });
  test.apply(remote);
  CHECK(base::directory_is_empty(remote.tree));
}

TEST_CASE("a command's end is recorded only after the packs that were there are applied") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  const auto exec = test.make_exec(remote);
  test.watcher.watch_exec(exec, false);
  {
    const auto paused = test.incoming.pause(remote.row.id, "the test");
    remote.send_file(1, "tree/result", "done");
    test.write_end(exec, kSucceeded);
    CHECK(test.comes([&] { return test.incoming.waiting_ends(remote.sandbox.id) == 1; }));
    CHECK(test.now(exec).state == state_db::ExecState::running);
    CHECK_FALSE(remote.read("result"));
  }
  CHECK(test.comes([&] { return test.now(exec).state == state_db::ExecState::exited; }));
  CHECK(remote.read("result") == "done");
}

TEST_CASE("a paused workspace holds up no other one of its owner") {
  RemoteFixture test;
  const Remote held = test.make_running("a");
  const Remote free = test.make_running("b");
  const auto paused = test.incoming.pause(held.row.id, "the test");
  held.send_file(1, "tree/a", "one");
  free.send_file(1, "tree/a", "one");
  CHECK(test.comes([&] { return free.read("a") == "one"; }));
  CHECK(held.packs() == 1);
}

TEST_CASE("clearing a dead sandbox applies what is complete before its directory goes") {
  RemoteFixture test;
  const Remote remote = test.make_remote("a");
  const auto mounted = test.mount(remote);  // at rest: the sandbox was not adopted
  const auto exec = test.make_exec(remote);
  test.watcher.watch_exec(exec, false);
  remote.send_file(1, "tree/a", "one");
  base::write_file(remote.incoming + "/part", "half");
  test.write_end(exec, kSucceeded);
  test.sandboxes.clear(remote.sandbox, "the test");
  CHECK(remote.read("a") == "one");
  CHECK_FALSE(base::path_exists(remote.incoming));
  CHECK(test.now(exec).state == state_db::ExecState::exited);
  CHECK(test.now(remote.sandbox).state == state_db::SandboxState::destroyed);
}

TEST_CASE("clearing a sandbox that was not adopted mounts its workspace for its last files") {
  RemoteFixture test;
  const Upstream upstream(test.directory.path() + "/upstream");
  base::write_file(upstream.path + "/README.md", "read me", 0644);
  upstream.commit();
  CreateRequest request;
  request.name = "real";
  request.repo_url = "file://" + upstream.path;
  request.backend = "lxc";
  const auto created = test.create.create(Caller{}, request, [](auto&&...) {});
  const Remote remote = test.make_remote(created.row);
  remote.send(1, [](PackWriter& pack) {
    put_file(pack, "tree/a", "one");
    pack.removal("tree/README.md");
  });
  test.sandboxes.clear(remote.sandbox, "the test");
  test.live.wait_unmounted(created.row.id, 20s);
  const std::string upper = test.storage->layer_path(created.row.layer) + "/tree/upper/";
  CHECK(base::read_file(upper + "a") == "one");
  struct stat status {};
  REQUIRE(stat((upper + "a").c_str(), &status) == 0);
  CHECK(status.st_uid == test.context.options.disk_first_id + layers::kUser);
  REQUIRE(stat((upper + "README.md").c_str(), &status) == 0);
  CHECK(S_ISCHR(status.st_mode));  // a whiteout
}

TEST_CASE("clearing keeps the directory while its packs have no room, unless it is being deleted") {
  RemoteFixture test;
  const Remote remote = test.make_remote("a", with_disk(1 << 20));
  const auto mounted = test.mount(remote);
  remote.send_file(1, "tree/large", std::string(3 << 20, 'x'));
  CHECK(code_thrown_by([&] { test.sandboxes.clear(remote.sandbox, "the test"); }) ==
        Code::resource_exhausted);
  CHECK(remote.packs() == 1);
  CHECK(test.now(remote.sandbox).state != state_db::SandboxState::destroyed);
  test.store.move(remote.row.id, state_db::WorkspaceState::ready,
                  state_db::WorkspaceState::deleting);
  test.sandboxes.clear(remote.sandbox, "deleted");
  CHECK(test.now(remote.sandbox).state == state_db::SandboxState::destroyed);
  CHECK(base::list_directory(remote.refused).size() == 1);
  CHECK(test.has_event("sandbox.files_left"));
}

TEST_CASE("after a power cut, what was applied and not synced is applied again") {
  RemoteFixture test;
  Remote remote = test.make_remote("a");
  const auto mounted = test.mount(remote);
  remote.send_file(1, "tree/a", "one");
  std::filesystem::rename(remote.path(1), remote.path(1, ".applied"));
  remote.send_file(2, "tree/b", "two");
  remote.sandbox.boot_id = "another boot";
  test.sandboxes.clear(remote.sandbox, "found dead");
  CHECK(remote.read("a") == "one");
  CHECK(remote.read("b") == "two");
}

TEST_CASE("a stop applies what came with the last sync") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  test.lxc->before_stop = [&](const std::string&) { remote.send_file(1, "tree/last", "words"); };
  test.start_stop.stop_sandbox(remote.row, "the test", {.gives_up = true});  // without a link
  CHECK(remote.read("last") == "words");
  CHECK(test.now(remote.sandbox).state == state_db::SandboxState::destroyed);
  CHECK_FALSE(base::path_exists(remote.incoming));
}

// Not a test: the one below runs it in a process of its own, which dies at a crash point.
TEST_CASE("a daemon that dies while it takes over files", "[.incoming-child]") {
  RemoteFixture test;
  const Remote remote = test.make_running("a");
  remote.send_file(1, "tree/a", "one");
  remote.send_file(2, "tree/b", "two");
  test.apply(remote);
}

TEST_CASE("the next daemon finishes what a dead one began to apply") {
  const std::string point = GENERATE("incoming.before_apply", "incoming.before_apply:2",
                                     "incoming.after_apply", "incoming.after_apply:2");
  CAPTURE(point);
  const layers::TemporaryDirectory parent;
  const pid_t child = fork();
  if (child == 0) {
    setenv("MOORAGE_CRASH_AT", point.c_str(), 1);
    setenv("TMPDIR", parent.path().c_str(), 1);
    execl("/proc/self/exe", "test_workspace", "[.incoming-child]", nullptr);
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
  const auto left = base::list_directory(parent.path());
  REQUIRE(left.size() == 1);

  RemoteFixture test(parent.path() + "/" + left.front());
  const auto sandboxes = state_db::SandboxTable(test.store).not_destroyed();
  REQUIRE(sandboxes.size() == 1);
  const Remote remote =
      test.place_of(state_db::WorkspaceTable(test.store).get(sandboxes[0].workspace), sandboxes[0]);
  CHECK_FALSE(base::list_directory(remote.incoming).empty());
  test.run(remote);  // the adoption
  CHECK(test.comes([&] { return base::directory_is_empty(remote.incoming); }));
  CHECK(remote.read("a") == "one");
  CHECK(remote.read("b") == "two");
}
