// An untrusted tree: links that lead out, special files, and races.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <thread>

#include "base/os/files.h"
#include "temporary_directory.h"

using namespace moorage;
using base::Fd;
using test::code_thrown_by;

namespace {

struct Tree {
  Tree() {
    base::make_directories(directory / "root/inside");
    base::write_file(directory / "root/inside/file", "inside");
    base::write_file(directory / "secret", "outside");
    root = base::open_directory(directory / "root");
  }
  void link(const std::string& target, const std::string& name) {
    REQUIRE(symlink(target.c_str(), (directory / ("root/" + name)).c_str()) == 0);
  }
  std::string read(const std::string& path) {
    return base::read_up_to(base::open_regular_in_root(root.get(), path, O_RDONLY).get(), 100);
  }
  test::TemporaryDirectory directory;
  Fd root;
};

}  // namespace

TEST_CASE("links and dots stay inside the root") {
  Tree tree;
  tree.link("../secret", "up");
  tree.link(tree.directory / "secret", "absolute");
  tree.link("/inside/file", "from_root");
  tree.link("/proc/self/root/etc/passwd", "magic");
  tree.link("loop", "loop");
  CHECK(tree.read("inside/file") == "inside");
  CHECK(tree.read("/inside/../../../inside/file") == "inside");
  CHECK(tree.read("from_root") == "inside");
  for (const char* path : {"up", "absolute", "magic", "../secret", "/../secret"}) {
    CHECK(code_thrown_by([&] { tree.read(path); }) == "not_found");
  }
  CHECK(code_thrown_by([&] { tree.read("loop"); }) == "invalid_argument");
  CHECK(code_thrown_by([&] { tree.read(std::string("inside\0/file", 12)); }) == "invalid_argument");
  CHECK(code_thrown_by([&] { tree.read("inside/file/under"); }) == "invalid_argument");
}

TEST_CASE("magic links of a proc below the root are not followed") {
  Fd proc = base::open_directory("/proc");
  CHECK(code_thrown_by([&] { base::open_in_root(proc.get(), "self/root/etc", O_PATH); }) ==
        "invalid_argument");
}

TEST_CASE("an empty path or slashes name the root itself") {
  Tree tree;
  for (const char* path : {"", "/", "//"}) {
    Fd fd = base::open_in_root(tree.root.get(), path, O_RDONLY | O_DIRECTORY);
    CHECK(base::list_directory(fd.get()) == std::vector<std::string>{"inside"});
  }
  Fd handle = base::open_in_root(tree.root.get(), "inside", O_PATH | O_DIRECTORY);
  CHECK(base::list_directory(handle.get()) == std::vector<std::string>{"file"});
}

TEST_CASE("a FIFO does not block the opener and is refused") {
  Tree tree;
  REQUIRE(mkfifo((tree.directory / "root/fifo").c_str(), 0600) == 0);
  CHECK(base::open_in_root(tree.root.get(), "fifo", O_RDONLY));
  CHECK(code_thrown_by([&] { tree.read("fifo"); }) == "invalid_argument");
  CHECK(code_thrown_by([&] { base::open_regular_in_root(tree.root.get(), "fifo", O_WRONLY); }) ==
        "invalid_argument");
  CHECK(code_thrown_by([&] { tree.read("inside"); }) == "invalid_argument");
}

TEST_CASE("a file is created inside, also through links") {
  Tree tree;
  tree.link("/inside", "there");
  Fd fd =
      base::open_regular_in_root(tree.root.get(), "there/new", O_WRONLY | O_CREAT | O_EXCL, 0640);
  base::write_all(fd.get(), "made");
  CHECK(tree.read("inside/new") == "made");
  CHECK(code_thrown_by([&] {
          base::open_in_root(tree.root.get(), "inside/new", O_WRONLY | O_CREAT | O_EXCL, 0640);
        }) == "already_exists");
}

TEST_CASE("swapping a directory for a link never lets a read leave the root") {
  Tree tree;
  base::make_directories(tree.directory / "outside");
  base::write_file(tree.directory / "outside/file", "outside");
  tree.link(tree.directory / "outside", "evil");
  std::atomic<bool> stop = false;
  std::thread attacker([&, root = tree.root.get()] {
    while (!stop) renameat2(root, "inside", root, "evil", RENAME_EXCHANGE);
  });
  int inside = 0;
  int outside = 0;
  for (int i = 0; i < 20'000; ++i) {
    try {
      ++(tree.read("inside/../inside/file") == "inside" ? inside : outside);
    } catch (const base::Error&) {
      // the link was there at this moment
    }
  }
  stop = true;
  attacker.join();
  CHECK(inside > 0);
  CHECK(outside == 0);
}
