// Real mounts, each in the mount namespace of its own thread, so that none is visible outside.
#include "base/os/mount.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <exception>
#include <functional>
#include <thread>

#include "base/os/files.h"
#include "base/os/process.h"
#include "temporary_directory.h"

using namespace moorage;
using base::Fd;
using test::code_thrown_by;

namespace {

bool is_root() {
  if (geteuid() == 0) return true;
  WARN("SKIPPED: needs root");
  return false;
}

void in_own_mount_namespace(const std::function<void()>& work) {
  std::exception_ptr failure;
  std::thread thread([&] {
    try {
      base::check(unshare(CLONE_FS | CLONE_NEWNS), "unshare");
      base::set_propagation_private("/");
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
}

uid_t owner_of(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 ? status.st_uid : ~0U;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::Error& error) {
    return error.message();
  }
  return "nothing thrown";
}

}  // namespace

TEST_CASE("a user namespace has its map, and its creator keeps no child and gets no SIGCHLD") {
  if (!is_root()) return;
  sigset_t chld;
  sigset_t before;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &chld, &before);
  Fd space = base::make_user_namespace({{0, 1'000'000'000, 65536}, {70000, 5, 1}});
  sigset_t pending;
  sigpending(&pending);
  CHECK(sigismember(&pending, SIGCHLD) == 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK(waitpid(-1, nullptr, WNOHANG | __WALL) == -1);

  // A process that enters it sees the map.
  base::ProcessOptions options;
  options.inherit_fds = {space.get()};
  const std::string user = "--user=/proc/self/fd/" + std::to_string(space.get());
  const auto entered = base::run_process(
      {"nsenter", user, "/bin/cat", "/proc/self/uid_map", "/proc/self/gid_map"}, options);
  const std::string lines = "         0 1000000000      65536\n     70000          5          1\n";
  CHECK(entered.output == lines + lines);
}

TEST_CASE("a map that the kernel refuses is an error and leaves no child") {
  if (!is_root()) return;
  CHECK(code_thrown_by([] { base::make_user_namespace({{0, 0, 10}, {5, 100, 10}}); }) == "io");
  CHECK(waitpid(-1, nullptr, WNOHANG | __WALL) == -1);
}

TEST_CASE("an idmapped mount shows mapped owners and writes the disk's owners") {
  if (!is_root()) return;
  test::TemporaryDirectory directory;
  base::make_directories(directory / "disk");
  base::make_directories(directory / "seen");
  base::write_file(directory / "disk/old", "x");
  REQUIRE(chown((directory / "disk/old").c_str(), 1'900'001'000, 1'900'001'000) == 0);
  REQUIRE(chown((directory / "disk").c_str(), 1'900'000'000, 1'900'000'000) == 0);
  in_own_mount_namespace([&] {
    Fd space = base::make_user_namespace({{1'900'000'000, 1'000'000'000, 65536}});
    Fd mount = base::clone_mount(directory / "disk");
    base::set_mount_idmap(mount.get(), space.get());
    base::attach_mount(mount.get(), directory / "seen");
    CHECK(owner_of(directory / "seen") == 1'000'000'000);
    CHECK(owner_of(directory / "seen/old") == 1'000'001'000);
    // This mapping lacks host root, so the kernel lets it create nothing here.
    CHECK(open((directory / "seen/of_root").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600) == -1);
    CHECK(errno == EOVERFLOW);
    Fd seen = base::open_directory(directory / "seen");
    setfsgid(1'000'000'000);
    setfsuid(1'000'000'000);  // of this thread only
    base::open_file_at(seen.get(), "new", O_WRONLY | O_CREAT, 0600);
  });
  CHECK(owner_of(directory / "disk/new") == 1'900'000'000);
}

TEST_CASE("attributes bind: read-only, nosuid, nodev, noexec") {
  if (!is_root()) return;
  test::TemporaryDirectory directory;
  base::make_directories(directory / "real");
  base::make_directories(directory / "place");
  base::write_file(directory / "real/script", "#!/bin/sh\n", 0755);
  in_own_mount_namespace([&] {
    Fd mount = base::clone_mount(directory / "real");
    base::set_mount_attributes(mount.get(), {true, true, true, true});
    base::attach_mount(mount.get(), directory / "place");
    struct statvfs status;
    REQUIRE(statvfs((directory / "place").c_str(), &status) == 0);
    const unsigned long all = ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC;
    CHECK((status.f_flag & all) == all);
    CHECK(open((directory / "place/new").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600) == -1);
    CHECK(errno == EROFS);
    CHECK(access((directory / "place/script").c_str(), X_OK) == -1);
    REQUIRE(umount2((directory / "place").c_str(), MNT_DETACH) == 0);
    CHECK_FALSE(base::path_exists(directory / "place/script"));
  });
  CHECK_FALSE(base::path_exists(directory / "place/script"));
}

TEST_CASE("an attach follows no link, and a detached mount ends with its descriptor") {
  if (!is_root()) return;
  test::TemporaryDirectory directory;
  base::make_directories(directory / "real");
  base::make_directories(directory / "victim");
  REQUIRE(symlink("victim", (directory / "link").c_str()) == 0);
  in_own_mount_namespace([&] {
    Fd mount = base::clone_mount(directory / "real");
    CHECK(code_thrown_by([&] { base::attach_mount(mount.get(), directory / "link"); }) !=
          "nothing thrown");
    mount.reset();
    CHECK(base::read_file("/proc/thread-self/mountinfo").find(directory.path()) ==
          std::string::npos);
  });
}

TEST_CASE("new file systems are mounted with options and attributes") {
  if (!is_root()) return;
  test::TemporaryDirectory directory;
  in_own_mount_namespace([&] {
    Fd mount =
        base::make_file_system("tmpfs", {{"size", "1m"}, {"mode", "0711"}}, {.nosuid = true});
    base::attach_mount(mount.get(), directory.path());
    struct statvfs status;
    REQUIRE(statvfs(directory.path().c_str(), &status) == 0);
    CHECK(status.f_blocks * status.f_frsize == 1 << 20);
    CHECK((status.f_flag & ST_NOSUID) != 0);
    CHECK((status.f_flag & ST_NODEV) == 0);
    struct stat root;
    REQUIRE(stat(directory.path().c_str(), &root) == 0);
    CHECK((root.st_mode & 07777) == 0711);
  });
}

TEST_CASE("a refused file system reports the kernel's reason") {
  if (!is_root()) return;
  CHECK(code_thrown_by([] { base::make_file_system("nosuchfs", {}, {}); }) == "unsupported");
  const std::string option = message_of([] {
    base::make_file_system("tmpfs", {{"nonsense", "1"}}, {});
  });
  CHECK(option.find("nonsense") != std::string::npos);
  CHECK(option.find("Unknown parameter") != std::string::npos);
  const std::string value = message_of([] {
    base::make_file_system("tmpfs", {{"size", "x"}}, {});
  });
  CHECK(value.find("Bad value for 'size'") != std::string::npos);
  CHECK(code_thrown_by([] {
          base::make_file_system("tmpfs", {{"size", std::string(256, '1')}}, {});
        }) == "invalid_argument");
}

TEST_CASE("propagation is set on all mounts below") {
  if (!is_root()) return;
  in_own_mount_namespace([] {
    CHECK(base::read_file("/proc/thread-self/mountinfo").find(" shared:") == std::string::npos);
    base::check(mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr), "share");
    CHECK(base::read_file("/proc/thread-self/mountinfo").find(" shared:") != std::string::npos);
    // Kept open: if the master vanished, there would be no slaves.
    Fd master = base::open_file("/proc/thread-self/ns/mnt", O_RDONLY);
    base::check(unshare(CLONE_NEWNS), "unshare");
    base::set_propagation_slave("/");
    const std::string now = base::read_file("/proc/thread-self/mountinfo");
    CHECK(now.find(" shared:") == std::string::npos);
    CHECK(now.find(" master:") != std::string::npos);
  });
}

TEST_CASE("a line of mountinfo is divided at spaces only, and its source may be empty") {
  const auto mounts = base::parse_mounts(
      "36 35 0:27 /of\ra\vperson /data\\040disk rw shared:1 master:2 - tmpfs  rw,size=4k\n"
      "nonsense\n"
      "37 35 8:1 / / rw - ext4 /dev/vda rw");
  REQUIRE(mounts.size() == 2);
  CHECK(mounts[0].id == 36);
  CHECK(mounts[0].device == "0:27");
  CHECK(mounts[0].target == "/data\\040disk");
  CHECK(mounts[0].type == "tmpfs");
  CHECK(mounts[0].source.empty());
  CHECK(mounts[0].options == "rw,size=4k");
  CHECK(mounts[1].source == "/dev/vda");
}
