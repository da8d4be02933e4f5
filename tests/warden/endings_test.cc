// Timeouts, cancelling, a full disk, shutdown.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "warden_process.h"

using namespace moorage;
using namespace moorage::test;

namespace {

// Daemonises in two ways that leave group and session; writes the pids to FILE.
std::string daemonising(const std::string& file) {
  return "setsid sh -c 'echo $$ >>" + file +
         "; sleep 1000' & "
         "(setsid sh -c '(setsid sh -c \"echo \\$\\$ >>" +
         file +
         "; exec sleep 1000\") & exit 0' &) ; "
         "(sleep 1000 & echo $! >>" +
         file + ") ; sleep 1000";
}

std::vector<pid_t> read_pids(const std::string& path) {
  std::ifstream file(path);
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

bool all_dead(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), process_lives);
}

struct SmallDisk {
  explicit SmallDisk(std::string path) : directory(std::move(path)) {
    REQUIRE(::mkdir(directory.c_str(), 0700) == 0);
    REQUIRE(::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=256k") == 0);
  }
  ~SmallDisk() { ::umount2(directory.c_str(), MNT_DETACH); }
  std::string directory;
};

}  // namespace

TEST_CASE("a timeout kills everything the command started, including daemons") {
  WardenProcess warden;
  const std::string pids = warden.directory() + "/pids";
  backends::StartRequest request = shell(daemonising(pids));
  request.timeout_ms = 700 * patience();  // all three have started by then
  Record record = run(warden, request, 60s);
  CHECK(record.kind() == "timed_out");
  CHECK(record.signal() == SIGKILL);
  CHECK(record.end.at("wall_ms").as_int64() >= request.timeout_ms);
  CHECK(record.end.at("wall_ms").as_int64() < 3000 * patience());
  REQUIRE(read_pids(pids).size() == 3);
  CHECK(eventually([&] { return all_dead(read_pids(pids)); }, 3s));
  CHECK(eventually([&] { return warden.children().empty(); }, 3s));
}

TEST_CASE("a timeout ends a command that forks endlessly") {
  WardenProcess warden;
  backends::StartRequest request = shell(
      "f() { (setsid sh -c 'sleep 0.02; exec sh -c \"$0\" \"$0\"' \"$0\" &) ; }; "
      "while :; do (setsid sleep 0.05 &) ; sleep 0.005; done");
  request.timeout_ms = 500;
  CHECK(run(warden, request).kind() == "timed_out");
  CHECK(eventually([&] { return warden.children().empty(); }, 5s));
}

TEST_CASE("cancelling a tree kills everything and a plain SIGKILL only the group") {
  WardenProcess warden;
  for (bool tree : {true, false}) {
    const std::string name = tree ? "tree" : "group";
    const std::string pids = warden.directory() + "/pids-" + name;
    Journal journal(warden.directory() + "/" + name);
    backends::StartRequest request = shell(daemonising(pids));
    request.tag = name;
    request.journal_fd = journal.append_fd.get();
    warden.client().start(request, 5s);
    REQUIRE(eventually([&] { return read_pids(pids).size() == 3; }));
    if (tree) {
      warden.client().kill_tree(name);
    } else {
      warden.client().send_signal(name, SIGKILL);
    }
    Record record = journal.wait_for_end();
    CHECK(record.kind() == "signalled");
    CHECK(record.signal() == SIGKILL);
    CHECK(eventually([&] { return all_dead(read_pids(pids)); }, tree ? 3000ms : 300ms) == tree);
    for (pid_t pid : read_pids(pids)) ::kill(pid, SIGKILL);
  }
}

TEST_CASE("what an ended command left behind can still be killed by its tag") {
  WardenProcess warden;
  const std::string pids = warden.directory() + "/pids";
  Journal journal(warden.directory() + "/left");
  backends::StartRequest request = shell("setsid sh -c 'echo $$ >>" + pids + "; sleep 1000' &");
  request.tag = "left";
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  CHECK(journal.wait_for_end().kind() == "exited");
  REQUIRE(eventually([&] { return read_pids(pids).size() == 1; }));
  CHECK_FALSE(all_dead(read_pids(pids)));
  warden.client().kill_tree("left");
  CHECK(eventually([&] { return all_dead(read_pids(pids)); }, 3s));
  CHECK(eventually([&] { return warden.children().empty(); }, 3s));
  CHECK_THROWS_AS(warden.client().kill_tree("left"), base::Error);
}

TEST_CASE("a kill just after a command's end reaches what it left behind") {
  WardenProcess warden;
  for (int round = 0; round < 5; ++round) {
    const std::string tag = "left" + std::to_string(round);
    const std::string pids = warden.directory() + "/" + tag + ".pids";
    Journal journal(warden.directory() + "/" + tag);
    backends::StartRequest request =
        shell("setsid sh -c 'echo $$ >" + pids + "; while :; do :; done' & until [ -s " + pids +
              " ]; do :; done");
    request.tag = tag;
    request.journal_fd = journal.append_fd.get();
    warden.client().start(request, 5s);
    REQUIRE(eventually([&] { return journal.read().pid != 0; }));
    const pid_t command = static_cast<pid_t>(journal.read().pid);
    REQUIRE(eventually([&] { return !process_lives(command); }));
    warden.client().kill_tree(tag);  // its end is not recorded yet: the rest holds its output
    CHECK(eventually([&] { return all_dead(read_pids(pids)); }, 3s));
    CHECK(journal.wait_for_end().kind() == "exited");
  }
}

TEST_CASE("a command that leaves too many processes behind has left a bomb, which is killed") {
  WardenProcess warden(Role::subreaper, {"--most-left", "4"});
  const std::string leaves = "for i in $(seq $N); do sleep 1000 & echo $!; done >pids; exit 0";
  std::vector<pid_t> few;
  for (const int number : {4, 5}) {
    backends::StartRequest request =
        shell("N=" + std::to_string(number) + "; cd " + warden.directory() + "; " + leaves);
    CHECK(run(warden, request).kind() == "exited");
    const auto pids = read_pids(warden.directory() + "/pids");
    REQUIRE(pids.size() == static_cast<size_t>(number));
    if (number == 4)
      few = pids;
    else
      CHECK(eventually([&] { return all_dead(pids); }));
  }
  for (const pid_t pid : few) {
    CHECK(process_lives(pid));
    ::kill(pid, SIGKILL);
  }
}

TEST_CASE("a timeout with a cgroup kills through it") {
  const std::string root = "/sys/fs/cgroup/unified";
  const std::string group = (::access(root.c_str(), F_OK) == 0 ? root : "/sys/fs/cgroup") +
                            "/moorage-test-warden-" + std::to_string(::getpid());
  if (::mkdir(group.c_str(), 0700) != 0 || ::access((group + "/cgroup.kill").c_str(), F_OK) != 0) {
    ::rmdir(group.c_str());
    WARN("SKIP: no cgroup2 hierarchy with cgroup.kill");
    return;
  }
  WardenProcess warden;
  const std::string pids = warden.directory() + "/pids";
  Journal journal(warden.directory() + "/journal");
  base::Fd join(::open((group + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  base::Fd kill(::open((group + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  backends::StartRequest request = shell("cat /proc/self/cgroup; " + daemonising(pids));
  request.tag = "cgroup";
  request.journal_fd = journal.append_fd.get();
  request.kill_fd = kill.get();
  request.join_fds = {join.get()};
  request.timeout_ms = 700;
  warden.client().start(request, 5s);
  Record record = journal.wait_for_end();
  CHECK(record.kind() == "timed_out");
  CHECK_THAT(record.output, Catch::Contains("/moorage-test-warden-"));
  REQUIRE(read_pids(pids).size() == 3);
  CHECK(eventually([&] { return all_dead(read_pids(pids)); }, 3s));
  CHECK(eventually([&] { return ::rmdir(group.c_str()) == 0; }, 3s));
}

TEST_CASE("on a full disk the command waits, and no output is lost") {
  WardenProcess warden;
  SmallDisk disk(warden.directory() + "/small");
  std::ofstream(disk.directory + "/filler") << std::string(130'000, 'x');
  Journal journal(disk.directory + "/journal");
  const std::string done = warden.directory() + "/done";
  backends::StartRequest request = shell("seq 1 200000; echo $? >" + done);
  request.tag = "full";
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  auto size = [&] {
    struct stat status {};
    ::stat(journal.path.c_str(), &status);
    return status.st_size;
  };
  REQUIRE(eventually([&] { return size() > 90'000; }));
  std::this_thread::sleep_for(500ms);
  const auto stuck_at = size();
  CHECK(::access(done.c_str(), F_OK) != 0);
  CHECK(warden.client().healthy(1s));
  std::this_thread::sleep_for(300ms);
  CHECK(size() == stuck_at);

  ::unlink((disk.directory + "/filler").c_str());
  REQUIRE(::mount("tmpfs", disk.directory.c_str(), "tmpfs", MS_REMOUNT, "size=8m") == 0);
  Record record = journal.wait_for_end();
  std::string expected;
  for (int i = 1; i <= 200'000; ++i) expected += std::to_string(i) + "\n";
  CHECK(record.output == expected);
  CHECK(record.code() == 0);
}

TEST_CASE("an end frame that meets a full disk is written when there is room") {
  WardenProcess warden;
  SmallDisk disk(warden.directory() + "/small");
  Journal journal(disk.directory + "/journal");
  backends::StartRequest request = shell("head -c 1000000 /dev/zero >" + disk.directory +
                                         "/filler 2>/dev/null; printf out; exit 5");
  request.tag = "full-end";
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  std::this_thread::sleep_for(400ms);
  ::unlink((disk.directory + "/filler").c_str());
  Record record = journal.wait_for_end();
  CHECK(record.output == "out");
  CHECK(record.code() == 5);
}

TEST_CASE("shutdown sends SIGTERM, kills after the grace period, records the ends, and exits") {
  for (Role role : {Role::subreaper, Role::process_one}) {
    WardenProcess warden(role);
    Journal polite(warden.directory() + "/polite"), stubborn(warden.directory() + "/stubborn");
    backends::StartRequest request =
        shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done");
    request.tag = "polite";
    request.journal_fd = polite.append_fd.get();
    warden.client().start(request, 5s);
    request = shell("trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.05; done");
    request.tag = "stubborn";
    request.journal_fd = stubborn.append_fd.get();
    warden.client().start(request, 5s);
    auto up = [](const Journal& journal) { return journal.read().output == "up\n"; };
    REQUIRE(eventually([&] { return up(polite) && up(stubborn); }));
    auto begin = std::chrono::steady_clock::now();
    warden.client().shut_down(600ms);
    auto took = std::chrono::steady_clock::now() - begin;
    CHECK(took >= 600ms);
    CHECK(took < patient(3s));
    CHECK(warden.wait_for_exit(3s) == 0);
    Record record = polite.read();
    CHECK(record.output == "up\nbye\n");
    CHECK(record.code() == 3);
    CHECK(stubborn.read().signal() == SIGKILL);
  }
}

TEST_CASE("shutdown with no running command skips the grace period") {
  WardenProcess warden;
  auto begin = std::chrono::steady_clock::now();
  warden.client().shut_down(5000ms);
  CHECK(std::chrono::steady_clock::now() - begin < patient(1s));
  CHECK(warden.wait_for_exit(1s) == 0);
  CHECK(!warden.client().healthy(100ms));
  CHECK_THROWS_AS(warden.client().list(), base::Error);
}

TEST_CASE("SIGTERM ends the sandbox if the host sends it, and not if a command does") {
  WardenProcess warden(Role::process_one);
  Journal polite(warden.directory() + "/polite");
  backends::StartRequest request =
      shell("trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done");
  request.journal_fd = polite.append_fd.get();
  warden.client().start(request, 5s);
  REQUIRE(eventually([&] { return polite.read().output == "up\n"; }));
  CHECK(run(warden, shell("kill -TERM 1; sleep 0.3; kill -0 1")).code() == 0);
  CHECK(!polite.read().ended);

  REQUIRE(::kill(warden.pid(), SIGTERM) == 0);
  CHECK(warden.wait_for_exit(3s) == 0);
  CHECK(polite.read().code() == 3);
}

TEST_CASE("process 1 reaps orphans") {
  WardenProcess warden(Role::process_one);
  Record record =
      run(warden, shell("for i in 1 2 3 4 5 6 7 8; do (setsid sleep 0.2 &) ; done; echo $$"));
  CHECK(record.code() == 0);
  CHECK(eventually([&] { return warden.children().empty(); }, 5s));
  CHECK(warden.client().healthy(1s));
}
