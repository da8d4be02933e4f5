#include "layers/overlay.h"

#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>
#include <thread>

#include "base/error.h"
#include "base/os/process.h"
#include "layers/storage_fixture.h"

namespace moorage::layers {
namespace {

using base::Fd;

struct stat look(const std::string& path) {
  struct stat status {};
  INFO(path);
  REQUIRE(lstat(path.c_str(), &status) == 0);
  return status;
}

// Runs `body` with this host id in a child; returns its exit code.
int as_user(uint32_t id, const std::function<int()>& body) {
  pid_t child = fork();
  if (child == 0) {
    if (setgid(id) < 0 || setuid(id) < 0) _exit(99);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

size_t host_mounts() {
  const std::string table = base::read_file("/proc/self/mountinfo");
  return static_cast<size_t>(std::count(table.begin(), table.end(), '\n'));
}

}  // namespace

TEST_CASE("a new layer has every directory, with owners in the id map") {
  StorageFixture fixture;
  fixture.storage->make_layer(fixture.chain.writable);  // a repeat is allowed
  const std::string top = fixture.storage->layer_path({1});
  CHECK((look(top).st_mode & 07777) == 0700);
  for (const std::string part : {"tree", "home", "system"}) {
    CHECK(look(top + "/" + part).st_uid == kDiskFirstId + 65536);
    CHECK(look(top + "/" + part + "/work").st_uid == kDiskFirstId + 65536);
    struct stat upper = look(top + "/" + part + "/upper");
    CHECK(upper.st_uid == kDiskFirstId + (part == "system" ? 0 : kAgent));
    CHECK((upper.st_mode & 07777) == 0755);
  }
  fixture.storage->remove_layer({1});
  fixture.storage->remove_layer({1});
  CHECK_FALSE(base::path_exists(top));
}

TEST_CASE("a mounted tree shows base files to the sandbox's ids and writes into the layer") {
  StorageFixture fixture;
  ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
  struct stat root = look(through(mounts.tree, "."));
  CHECK(root.st_uid == kFirstHostId + kAgent);
  CHECK(root.st_dev == mounts.tree_device);
  CHECK(mounts.tree_device != mounts.home_device);
  CHECK(look(through(mounts.tree, "README.md")).st_uid == kFirstHostId + kAgent);

  CHECK(as_user(kFirstHostId + kAgent, [&] {
          if (fchdir(mounts.tree.get()) < 0) return 1;
          if (rename("deep", "moved") < 0) return 2;  // needs redirect_dir
          int fd = open("README.md", O_WRONLY | O_APPEND);
          if (fd < 0 || write(fd, "more\n", 5) != 5) return 3;
          if (open("new", O_WRONLY | O_CREAT, 0600) < 0) return 4;
          return unlink("bin/run") < 0 ? 5 : 0;
        }) == 0);
  CHECK(base::read_file(through(mounts.tree, "moved/er/file")) == "content\n");
  CHECK(base::read_file(fixture.chain.base_tree + "/README.md") == "read me\n");
  CHECK(base::read_file(fixture.upper() + "/README.md") == "read me\nmore\n");
  CHECK(look(fixture.upper() + "/new").st_uid == kDiskFirstId + kAgent);
  CHECK(S_ISCHR(look(fixture.upper() + "/bin/run").st_mode));
  char redirect[64] = {};
  CHECK(lgetxattr((fixture.upper() + "/moved").c_str(), "trusted.overlay.redirect", redirect,
                  sizeof redirect) > 0);
}

TEST_CASE("programs in a workspace run; devices and setuid bits have no effect") {
  StorageFixture fixture;
  ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
  struct statvfs status {};
  REQUIRE(fstatvfs(mounts.tree.get(), &status) == 0);
  CHECK((status.f_flag & ST_NOSUID));
  CHECK((status.f_flag & ST_NODEV));
  CHECK_FALSE((status.f_flag & ST_NOEXEC));
  CHECK_FALSE((status.f_flag & ST_RDONLY));
  CHECK(as_user(kFirstHostId + kAgent, [&] {
          if (fchdir(mounts.tree.get()) < 0) return 1;
          execl("bin/run", "run", nullptr);  // by path: the descriptor closes at exec
          return 2;
        }) == 0);
}

TEST_CASE("the home is mounted over the image's skeleton, or over an empty directory") {
  StorageFixture fixture;
  {
    ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
    CHECK(base::list_directory(mounts.home.get()).empty());
    CHECK(look(through(mounts.home, ".")).st_uid == kFirstHostId + kAgent);
  }
  fixture.chain.image_home = fixture.directory.path() + "/skeleton";
  base::make_directories(fixture.chain.image_home, 0755);
  base::write_file(fixture.chain.image_home + "/.profile", "umask 022\n", 0644);
  ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
  CHECK(base::list_directory(mounts.home.get()) == std::vector<std::string>{".profile"});
}

TEST_CASE("frozen layers show through, newest first") {
  StorageFixture fixture;
  for (int64_t layer = 1; layer <= 5; ++layer) {
    fixture.storage->make_layer({layer});
    fixture.chain.writable = {layer};
    ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
    CHECK(as_user(kFirstHostId + kAgent, [&] {
            if (fchdir(mounts.tree.get()) < 0) return 1;
            int fd = open("README.md", O_WRONLY | O_TRUNC);
            const std::string text = std::to_string(layer);
            return write(fd, text.data(), text.size()) == 1 ? 0 : 2;
          }) == 0);
    CHECK(base::read_file(through(mounts.tree, "README.md")) == std::to_string(layer));
    fixture.chain.frozen.insert(fixture.chain.frozen.begin(), {layer});
  }
}

TEST_CASE("a chain may have as many layers as there are letters, but not more") {
  StorageFixture fixture;
  for (int64_t layer = 2; layer <= 61; ++layer) {
    fixture.storage->make_layer({layer});
    fixture.chain.frozen.push_back({layer});
  }
  CHECK(fixture.storage->mount(fixture.chain, kFirstHostId).tree);
  fixture.storage->make_layer({62});
  fixture.chain.frozen.push_back({62});
  CHECK_THROWS_AS(fixture.storage->mount(fixture.chain, kFirstHostId), base::Error);
}

TEST_CASE("a failed mount names the cause and leaves the mounter usable") {
  StorageFixture fixture;
  Chain broken = fixture.chain;
  broken.base_tree += "/README.md";
  CHECK_THROWS_AS(fixture.storage->mount(broken, kFirstHostId), base::Error);
  broken.base_tree = "/nowhere";
  CHECK_THROWS_AS(fixture.storage->mount(broken, kFirstHostId), base::Error);
  CHECK(fixture.storage->mount(fixture.chain, kFirstHostId).tree);
}

TEST_CASE("a read-only bind shows the host's root as the inside root and refuses writes") {
  StorageFixture fixture;
  const std::string objects = fixture.directory.path() + "/objects";
  base::make_directories(objects, 0755);
  base::write_file(objects + "/pack", "bytes", 0644);
  Fd bind = fixture.storage->bind_read_only(objects, kFirstHostId);
  CHECK(look(through(bind, "pack")).st_uid == kFirstHostId);
  CHECK(open(through(bind, "pack").c_str(), O_WRONLY | O_CLOEXEC) < 0);
  CHECK(errno == EROFS);
  struct statvfs status {};
  REQUIRE(fstatvfs(bind.get(), &status) == 0);
  CHECK((status.f_flag & ST_NOEXEC));
}

TEST_CASE("mounts from many threads leave the host's mount table unchanged") {
  size_t before = host_mounts();
  {
    StorageFixture fixture;
    for (int64_t layer = 2; layer <= 5; ++layer) fixture.storage->make_layer({layer});
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 4; ++i) {
      threads.emplace_back([&fixture, i] {
        Chain chain = fixture.chain;
        chain.writable = {i + 2};
        for (int round = 0; round < 50; ++round) {
          fixture.storage->mount(chain, kFirstHostId + 65536 * i);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(host_mounts() == before);
  }
  CHECK(host_mounts() == before);
}

TEST_CASE("after a power cut a layer is whole if any later change in it survived") {
  TemporaryDirectory directory;
  const std::string image = directory.path() + "/image";
  const std::string store = directory.path() + "/store";
  const std::string after = directory.path() + "/after";
  base::make_directories(store);
  base::make_directories(after);
  in_own_namespace([&] {
    auto run = [](const std::vector<std::string>& argv) {
      return base::run_process(argv, {}).ok();
    };
    REQUIRE(run({"truncate", "-s", "64M", image}));
    REQUIRE(run({"mkfs.ext4", "-q", "-F", image}));
    if (!run({"mount", "-o", "loop", image, store})) {
      WARN("SKIPPED: no loop devices here");
      return;
    }
    {
      auto storage = make_overlay_storage({.store = store});
      base::sync_file_system(store);
      base::write_file(store + "/noise", std::string(100'000, 'x'));
      storage->make_layer({7});
      base::sync_directory(store + "/layers/ly_7");
      // The disk at this moment, with no later writeback.
      REQUIRE(run({"cp", "--sparse=always", image, image + ".cut"}));
    }
    CHECK(run({"umount", store}));
    REQUIRE(run({"mount", "-o", "loop", image + ".cut", after}));
    for (const std::string part : {"tree", "home", "system"}) {
      CHECK(look(after + "/layers/ly_7/" + part + "/work").st_uid == kDiskFirstId + 65536);
      CHECK((look(after + "/layers/ly_7/" + part + "/upper").st_mode & 07777) == 0755);
    }
    CHECK(run({"umount", after}));
  });
}

TEST_CASE("mounting a workspace takes about a millisecond", "[measure]") {
  StorageFixture fixture;
  constexpr int kRounds = 200;
  auto measure = [&](uint32_t step, const char* what) {
    std::vector<double> times;
    for (uint32_t i = 0; i < kRounds; ++i) {
      auto start = std::chrono::steady_clock::now();
      ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId + i * step * 65536);
      times.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count());
    }
    std::sort(times.begin(), times.end());
    std::cout << "mount " << what << ": p50 " << times[kRounds / 2] << " ms, p99 "
              << times[kRounds * 99 / 100] << " ms\n";
    return times[kRounds / 2];
  };
  CHECK(measure(0, "with known ids") < 200);
  CHECK(measure(1, "with new ids") < 200);
  std::vector<double> times;
  for (int64_t layer = 100; layer < 200; ++layer) {
    auto start = std::chrono::steady_clock::now();
    fixture.storage->make_layer({layer});
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(times.begin(), times.end());
  std::cout << "make_layer: p50 " << times[50] << " ms\n";
}

}  // namespace moorage::layers
