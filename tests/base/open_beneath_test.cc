// A tree written by an agent: everything that could block, mislead or harm an opener.
#include "base/os/open_beneath.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "../patience.h"
#include "base/os/atomic_file.h"
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
  std::string path(const std::string& name) { return directory / ("root/" + name); }
  void link(const std::string& target, const std::string& name) {
    REQUIRE(symlink(target.c_str(), path(name).c_str()) == 0);
  }
  std::string read(const std::string& name) {
    return base::read_up_to(base::open_regular_beneath(root.get(), name, O_RDONLY).get(), 100);
  }
  test::TemporaryDirectory directory;
  Fd root;
};

}  // namespace

TEST_CASE("a path beneath a directory follows no link at any position") {
  Tree tree;
  tree.link("inside", "directory_link");
  tree.link("inside/file", "file_link");
  tree.link(tree.directory / "secret", "absolute");
  tree.link("/proc/self/root", "magic");
  CHECK(tree.read("inside/file") == "inside");
  for (const char* name :
       {"directory_link/file", "file_link", "absolute", "magic/etc/passwd", "../secret",
        "inside/../../secret", "/etc/passwd", "inside/file/under"}) {
    INFO(name);
    CHECK(code_thrown_by([&] { tree.read(name); }) == "invalid_argument");
  }
  CHECK(code_thrown_by([&] { tree.read("missing"); }) == "not_found");
}

TEST_CASE("FIFOs, sockets and devices are refused without blocking") {
  Tree tree;
  REQUIRE(mkfifo(tree.path("fifo").c_str(), 0666) == 0);
  const Fd listener = base::listen_unix(tree.path("socket"), 0666);
  for (const char* name : {"fifo", "socket", "inside"}) {
    INFO(name);
    CHECK(code_thrown_by([&] { tree.read(name); }) == "invalid_argument");
  }
  if (geteuid() == 0) {
    REQUIRE(mknod(tree.path("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0);
    CHECK(code_thrown_by([&] { tree.read("null"); }) == "invalid_argument");
  }
  // No one reads: a blocking open would wait forever.
  CHECK(code_thrown_by([&] { base::open_regular_beneath(tree.root.get(), "fifo", O_WRONLY); }) ==
        "invalid_argument");
}

TEST_CASE("a new file replaces its name, and opens nothing under its temporary name") {
  Tree tree;
  const std::string temporary = ".HEAD.moorage-new";
  const auto write = [&] {
    base::AtomicFile file(tree.root.get(), "HEAD", {.mode = 0644});
    file.write("new");
    file.commit();
    CHECK(tree.read("HEAD") == "new");
    REQUIRE(unlink(tree.path("HEAD").c_str()) == 0);
  };
  SECTION("nothing") {}
  SECTION("a FIFO") { REQUIRE(mkfifo(tree.path(temporary).c_str(), 0666) == 0); }
  SECTION("a link") { tree.link(tree.directory / "secret", temporary); }
  SECTION("a directory") { REQUIRE(mkdir(tree.path(temporary).c_str(), 0755) == 0); }
  SECTION("a FIFO has the name itself") { REQUIRE(mkfifo(tree.path("HEAD").c_str(), 0666) == 0); }
  write();
  CHECK(base::read_file(tree.directory / "secret") == "outside");
}

TEST_CASE("an uncommitted new file leaves nothing") {
  Tree tree;
  const auto before = base::list_directory(tree.root.get());
  { base::AtomicFile file(tree.root.get(), "HEAD", {.mode = 0644}); }
  CHECK(base::list_directory(tree.root.get()) == before);
}

TEST_CASE("a file swapped for a link during open is opened inside or not at all") {
  Tree tree;
  std::atomic<bool> stop{false};
  const std::string place = tree.path("inside/swapped");
  base::write_file(place, "inside");
  std::thread swapper([&] {
    const std::string link = tree.path("inside/link");
    const std::string file = tree.path("inside/plain");
    while (!stop) {
      (void)!symlink((tree.directory / "secret").c_str(), link.c_str());
      (void)rename(link.c_str(), place.c_str());
      base::write_file(file, "inside");
      (void)rename(file.c_str(), place.c_str());
    }
  });
  int opened = 0;
  int refused = 0;
  const auto until = std::chrono::steady_clock::now() + tests::patient(std::chrono::seconds(60));
  for (int i = 0; i < 3000 || opened == 0 || refused == 0; ++i) {
    if (std::chrono::steady_clock::now() > until) break;
    const Fd fd = base::try_open_regular_beneath(tree.root.get(), "inside/swapped", O_RDONLY);
    ++(fd ? opened : refused);
    if (fd) CHECK(base::read_up_to(fd.get(), 100) != "outside");
  }
  stop = true;
  swapper.join();
  CHECK(opened > 0);
  CHECK(refused > 0);
}

TEST_CASE("a walk climbs only to the directory it came from") {
  Tree tree;
  struct stat status {};
  REQUIRE(fstat(tree.root.get(), &status) == 0);
  const Fd inside = base::open_directory_beneath(tree.root.get(), "inside");
  CHECK(base::try_open_parent(inside.get(), status.st_dev, status.st_ino));
  base::make_directories(tree.path("elsewhere"));
  REQUIRE(rename(tree.path("inside").c_str(), tree.path("elsewhere/inside").c_str()) == 0);
  CHECK_FALSE(base::try_open_parent(inside.get(), status.st_dev, status.st_ino));
}
