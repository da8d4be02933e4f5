#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "base/os/files.h"
#include "temporary_directory.h"

using namespace moorage;
using base::Fd;
using test::code_thrown_by;

namespace {

// A chain of directories below path, each with a file; built with descriptors, because no path is
// long enough.
void make_chain(const std::string& path, int depth) {
  base::make_directories(path);
  Fd here = base::open_directory(path);
  const std::string name(40, 'n');
  for (int i = 0; i < depth; ++i) {
    base::open_file_at(here.get(), "file", O_WRONLY | O_CREAT, 0600);
    REQUIRE(mkdirat(here.get(), name.c_str(), 0700) == 0);
    here = base::open_file_at(here.get(), name, O_RDONLY | O_DIRECTORY);
  }
}

// So few that one descriptor per level would fail.
class FewDescriptors {
 public:
  FewDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few{200, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a chain of 3000 directories is measured and removed with few descriptors") {
  test::TemporaryDirectory directory;
  make_chain(directory / "deep", 3000);
  FewDescriptors few;
  CHECK(base::tree_usage(directory / "deep").inodes == 1 + 2 * 3000);
  base::remove_tree(directory / "deep");
  CHECK_FALSE(base::path_exists(directory / "deep"));
}

TEST_CASE("removal follows no link and stays inside the tree") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "keep");
  base::write_file(directory / "keep/file", "kept");
  base::make_directories(directory / "tree/sub");
  REQUIRE(symlink((directory / "keep").c_str(), (directory / "tree/sub/link").c_str()) == 0);
  REQUIRE(symlink((directory / "keep/file").c_str(), (directory / "tree/file").c_str()) == 0);
  base::remove_tree(directory / "tree/");
  CHECK_FALSE(base::path_exists(directory / "tree"));
  CHECK(base::read_file(directory / "keep/file") == "kept");

  REQUIRE(symlink((directory / "keep").c_str(), (directory / "link").c_str()) == 0);
  base::remove_tree(directory / "link");
  CHECK_FALSE(base::path_exists(directory / "link"));
  CHECK(base::read_file(directory / "keep/file") == "kept");
}

TEST_CASE("removing a missing tree succeeds, and dangerous names are refused") {
  test::TemporaryDirectory directory;
  base::remove_tree(directory / "none");
  base::remove_tree(directory / "none/at/all");
  for (const char* path : {"", "/", ".", "..", "/tmp/..", "//"}) {
    CHECK(code_thrown_by([&] { base::remove_tree(path); }) == "invalid_argument");
  }
}

TEST_CASE("append-only files and directories are removed too") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "tree/journal");
  base::write_file(directory / "tree/journal/output", "x");
  Fd file = base::open_file(directory / "tree/journal/output", O_RDONLY);
  Fd inner = base::open_directory(directory / "tree/journal");
  Fd outer = base::open_directory(directory / "tree");
  if (geteuid() != 0 || !base::set_append_only(file.get(), true)) {
    WARN("SKIPPED: needs root and a file system with attributes");
    return;
  }
  REQUIRE(base::set_append_only(inner.get(), true));
  REQUIRE(base::set_append_only(outer.get(), true));
  REQUIRE(unlink((directory / "tree/journal/output").c_str()) == -1);
  base::remove_tree(directory / "tree");
  CHECK_FALSE(base::path_exists(directory / "tree"));
}

TEST_CASE("immutable files and directories at any depth are removed too") {
  test::TemporaryDirectory directory;
  for (const int depth : {1, 70}) {
    INFO(depth);
    make_chain(directory / "tree", depth);
    std::string path = directory / "tree";
    for (int i = 0; i + 1 < depth; ++i) path += "/" + std::string(40, 'n');
    const std::string last = path + "/" + std::string(40, 'n');
    const std::string command = "touch " + last + "/fixed && chattr +i " + last + "/fixed && " +
                                "chattr +i " + last + " " + path;
    if (geteuid() != 0 || std::system(command.c_str()) != 0) {
      WARN("SKIPPED: needs root and a file system with attributes");
      return;
    }
    base::remove_tree(directory / "tree");
    CHECK_FALSE(base::path_exists(directory / "tree"));
  }
}

TEST_CASE("a removal stops at a mount instead of emptying it") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "tree/place");
  base::make_directories(directory / "live");
  base::write_file(directory / "live/file", "alive");
  if (mount((directory / "live").c_str(), (directory / "tree/place").c_str(), nullptr, MS_BIND,
            nullptr) < 0) {
    WARN("SKIPPED: needs root");
    return;
  }
  CHECK(code_thrown_by([&] { base::remove_tree(directory / "tree"); }) == "conflict");
  CHECK(base::tree_usage(directory / "tree").inodes >= 1);
  CHECK(umount((directory / "tree/place").c_str()) == 0);
  CHECK(base::read_file(directory / "live/file") == "alive");
  base::remove_tree(directory / "tree");
  CHECK_FALSE(base::path_exists(directory / "tree"));
}

TEST_CASE("a wide tree with names of any bytes is removed") {
  test::TemporaryDirectory directory;
  for (int i = 0; i < 300; ++i) {
    const std::string sub = directory / ("tree/" + std::to_string(i) + "\n\xff name");
    base::make_directories(sub);
    base::write_file(sub + "/ ", "");
  }
  base::remove_tree(directory / "tree");
  CHECK_FALSE(base::path_exists(directory / "tree"));
}

TEST_CASE("a removal survives concurrent moves of directories") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "keep");
  base::write_file(directory / "keep/file", "kept");
  make_chain(directory / "tree/a", 150);
  make_chain(directory / "tree/b", 150);
  std::atomic<bool> stop = false;
  std::thread attacker([&] {
    while (!stop) {
      (void)rename((directory / "tree/a").c_str(), (directory / "tree/b/a").c_str());
      (void)rename((directory / "tree/b/a").c_str(), (directory / "tree/a").c_str());
    }
  });
  code_thrown_by([&] { base::remove_tree(directory / "tree"); });
  stop = true;
  attacker.join();
  base::remove_tree(directory / "tree");
  CHECK_FALSE(base::path_exists(directory / "tree"));
  CHECK(base::read_file(directory / "keep/file") == "kept");
}

TEST_CASE("usage counts blocks, and a hard-linked file once") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "tree/sub");
  base::write_file_durable(directory / "tree/file", std::string(1 << 20, 'x'));
  const base::Usage before = base::tree_usage(directory / "tree");
  CHECK(before.inodes == 3);
  CHECK(before.bytes >= 1 << 20);
  CHECK(before.bytes < (1 << 20) + (64 << 10));
  REQUIRE(link((directory / "tree/file").c_str(), (directory / "tree/sub/again").c_str()) == 0);
  CHECK(base::tree_usage(directory / "tree").bytes == before.bytes);
  CHECK(base::tree_usage(directory / "tree").inodes == 3);
  CHECK(code_thrown_by([&] { base::tree_usage(directory / "none/x"); }) == "not_found");
}

TEST_CASE("files linked from several trees count as a share in each") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "one");
  base::make_directories(directory / "two");
  base::write_file(directory / "one/file", std::string(1 << 20, 'x'));
  const base::Usage alone = base::shared_tree_usage(directory / "one");
  CHECK(alone.bytes == base::tree_usage(directory / "one").bytes);
  REQUIRE(link((directory / "one/file").c_str(), (directory / "two/other").c_str()) == 0);
  const base::Usage one = base::shared_tree_usage(directory / "one");
  const base::Usage two = base::shared_tree_usage(directory / "two");
  CHECK(one.bytes < alone.bytes - (500 << 10));
  struct stat file {};
  REQUIRE(stat((directory / "one/file").c_str(), &file) == 0);
  const uint64_t bytes = static_cast<uint64_t>(file.st_blocks) * 512;
  CHECK(one.bytes + bytes / 2 == alone.bytes);
  CHECK(two.bytes == base::tree_usage(directory / "two").bytes - bytes / 2);
  CHECK(one.inodes + two.inodes == 2);  // each half rounds down to zero
}

TEST_CASE("hard-linked files count once, however many there are") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "linked");
  for (int i = 0; i < 200; ++i) {
    const std::string file = directory / ("linked/" + std::to_string(i));
    base::write_file(file, std::string(100'000, 'x'));
    REQUIRE(link(file.c_str(), (file + "-again").c_str()) == 0);
  }
  const base::Usage linked = base::tree_usage(directory / "linked");
  CHECK(linked.complete);
  CHECK(linked.inodes == 201);
  const base::Usage shared = base::tree_usage(directory / "linked", {.max_memory_bytes = 1'000});
  CHECK(shared.complete);
  CHECK(shared.inodes == 201);
  CHECK(shared.bytes == linked.bytes);
}

TEST_CASE("usage is complete however wide a tree is, on every level") {
  test::TemporaryDirectory directory;
  constexpr uint64_t kLevels = 30;
  constexpr uint64_t kWidth = 60;
  std::string place = directory / "wide";
  for (uint64_t level = 0; level < kLevels; ++level) {
    for (uint64_t i = 0; i < kWidth; ++i)
      base::make_directories(place + "/" + std::string(40, 'd') + std::to_string(i) + "/below");
    place += "/" + std::string(40, 'd') + std::to_string(level);
  }
  const base::Usage whole = base::tree_usage(directory / "wide");
  CHECK(whole.complete);
  CHECK(whole.inodes == 1 + 2 * kLevels * kWidth);
  const base::Usage tight = base::tree_usage(directory / "wide", {.max_memory_bytes = 10'000});
  CHECK(tight.complete);
  CHECK(tight.inodes == whole.inodes);
  CHECK(tight.bytes == whole.bytes);
}

TEST_CASE("usage of a tree that is too deep or slow is a lower bound, and says so") {
  test::TemporaryDirectory directory;
  std::string place = directory / "deep";
  for (int level = 0; level < 200; ++level) place += "/d";
  base::make_directories(place);
  CHECK(base::tree_usage(directory / "deep").inodes == 201);
  const base::Usage some = base::tree_usage(directory / "deep", {.max_memory_bytes = 10'000});
  CHECK_FALSE(some.complete);
  CHECK(some.inodes > 10);
  CHECK(some.inodes < 201);
  CHECK_FALSE(
      base::tree_usage(directory / "deep", {.time = std::chrono::milliseconds(0)}).complete);
}
