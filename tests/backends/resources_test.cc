// Limits of a sandbox's control groups on backend lxc besides memory, CPU and processes: device
// nodes and the disk rate. A host root process joins the group, so that only the group can refuse.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <functional>
#include <vector>

#include "backends/cgroups/block_device.h"
#include "backends/cgroups/cgroups.h"
#include "backends/cgroups/device_rules.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "sandbox_fixture.h"

using namespace moorage;
using tests::SandboxFixture;

namespace {

// The errno of body, run by host root within the sandbox's groups: in the warden's, because the
// commands' group accepts no process itself where cgroup v2 counts memory.
int errno_inside(const SandboxFixture& sandboxes, const std::function<long()>& body) {
  std::vector<base::Fd> groups;
  for (const std::string& file :
       backends::SandboxCgroup(backends::find_cgroups(), sandboxes.name(1)).join_files("warden"))
    groups.push_back(base::open_file(file, O_WRONLY));
  const pid_t child = fork();
  if (child == 0) {
    for (const base::Fd& group : groups) {
      if (write(group.get(), "0", 1) != 1) _exit(255);  // not an errno
    }
    errno = 0;
    _exit(body() < 0 ? errno : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("even as host root, a sandbox process cannot open or create a device (13)") {
  SandboxFixture sandboxes("lxc");
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  const std::string place = sandboxes.store() + "/device";
  REQUIRE(mknod(place.c_str(), S_IFBLK | 0600, makedev(7, 0)) ==
          0);  // loop0, whether it exists or not
  auto open_it = [](const char* path, int flags) {
    return long{open(path, flags | O_CLOEXEC | O_NONBLOCK)};
  };

  CHECK(errno_inside(sandboxes, [&] { return open_it(place.c_str(), O_RDONLY); }) == EPERM);
  CHECK(errno_inside(sandboxes, [&] { return open_it("/dev/kmsg", O_WRONLY); }) == EPERM);
  const std::string made = sandboxes.store() + "/made";
  for (const auto& [type, number] :
       {std::pair(S_IFCHR, makedev(1, 1)), std::pair(S_IFCHR, makedev(1, 3)),
        std::pair(S_IFBLK, makedev(7, 0))}) {
    CHECK(errno_inside(sandboxes, [&, type = type, number = number] {
            return mknod(made.c_str(), static_cast<mode_t>(type) | 0600, number);
          }) == EPERM);
  }
  for (const char* path : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}) {
    CAPTURE(path);
    CHECK(errno_inside(sandboxes, [&] { return open_it(path, O_RDWR); }) == 0);
  }
  CHECK(errno_inside(sandboxes, [&] {
          const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
          if (terminal < 0 || grantpt(terminal) < 0 || unlockpt(terminal) < 0) return -1L;
          return open_it(ptsname(terminal), O_RDWR | O_NOCTTY);
        }) == 0);

  // Without the rules the same root can open and create them.
  CHECK(open_it("/dev/kmsg", O_WRONLY) >= 0);
  CHECK(mknod(made.c_str(), S_IFCHR | 0600, makedev(1, 1)) == 0);
}

TEST_CASE("all sandboxes together have one share of the processors when these are short") {
  SandboxFixture sandboxes("lxc", [](auto& options) { options.cpu_weight = 50; });
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  const auto hierarchies = backends::find_cgroups();
  const std::string top = hierarchies.cpu_v1.empty() ? hierarchies.unified : hierarchies.cpu_v1;
  const std::string file = hierarchies.cpu_v1.empty() ? "/cpu.weight" : "/cpu.shares";
  CHECK(base::read_file(top + "/" + backends::kSandboxesGroup + file) ==
        (hierarchies.cpu_v1.empty() ? "50\n" : "512\n"));
}

TEST_CASE("the disk rate limit is enforced, each way") {
  SandboxFixture sandboxes("lxc");
  if (!tests::available(sandboxes)) return;
  const auto hierarchies = backends::find_cgroups();
  if (!hierarchies.disk) {
    WARN("this host has no controller for disk rates");
    return;
  }
  std::string disk;
  try {
    disk = backends::disk_of(sandboxes.store());
  } catch (const base::Error& error) {
    WARN("the store is not on a disk: " << error.message());
    return;
  }
  sandboxes.start(1);
  constexpr size_t kPiece = 256 << 10;
  constexpr int kPieces = 8;
  const backends::SandboxCgroup group(hierarchies, sandboxes.name(1));
  group.limit_disk(disk, kPiece * 4);  // the eight pieces last two seconds
  const auto start = std::chrono::steady_clock::now();
  const std::string file = sandboxes.store() + "/written";
  CHECK(errno_inside(sandboxes, [&] {
          const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600);
          void* bytes = nullptr;
          if (fd < 0 || posix_memalign(&bytes, 4096, kPiece) != 0) return -1L;
          for (int i = 0; i < kPieces; ++i) {
            if (write(fd, bytes, kPiece) != static_cast<ssize_t>(kPiece)) return -1L;
          }
          return 0L;
        }) == 0);
  // A lower bound: no slow machine passes it without the limit on a working disk, and no fast one
  // fails it with the limit.
  CHECK(std::chrono::steady_clock::now() - start > std::chrono::milliseconds(1200));
}

TEST_CASE("the disk below a path is a whole disk, and tmpfs has none") {
  CHECK_THROWS_AS(backends::disk_of("/dev/shm"), base::Error);
  SandboxFixture sandboxes("fake");
  struct stat info {};
  REQUIRE(stat(sandboxes.store().c_str(), &info) == 0);
  if (major(info.st_dev) == 0) return;
  const std::string disk = backends::disk_of(sandboxes.store());
  CHECK(base::path_exists("/sys/dev/block/" + disk + "/queue"));
}
