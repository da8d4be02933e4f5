#include "layers/tree_files.h"

#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "base/error.h"
#include "base/os/mount.h"
#include "layers/storage_fixture.h"

namespace moorage::layers {
namespace {

using base::Code;
using base::Fd;

constexpr uint32_t kOwner = kFirstHostId + kAgent;

struct TreeFixture : StorageFixture {
  ActiveMounts mounts = storage->mount(chain, kFirstHostId);
  TreeFiles files{{{"/workspace", mounts.tree.get()}, {"/home/user", mounts.home.get()}}, kOwner};

  void put(const std::string& path, std::string_view bytes, std::optional<uint32_t> mode = {}) {
    TreeFiles::Writer writer = files.begin_write(path, mode);
    writer.write(bytes);
    writer.commit();
  }
  std::string get(const std::string& path) {
    uint64_t size = 0;
    Fd fd = files.open_for_reading(path, &size);
    return base::read_up_to(fd.get(), size);
  }
  std::string at(const std::string& path) { return through(mounts.tree, path); }
};

template <typename Body>
Code refusal(const Body& body) {
  try {
    body();
  } catch (const base::Error& error) {
    INFO(error.message());
    return error.code();
  }
  FAIL("no error was thrown");
  return Code::internal;
}

}  // namespace

TEST_CASE("a file's time that does not fit is the nearest that does") {
  TreeFixture tree;
  tree.put("late", "x");
  const timespec times[2] = {{0, UTIME_OMIT}, {13'569'465'600, 0}};  // 2400-01-01
  REQUIRE(utimensat(AT_FDCWD, tree.at("late").c_str(), times, 0) == 0);
  CHECK(tree.files.stat("late").modified_ns == INT64_MAX);
}

TEST_CASE("a written file reads back and belongs to the agent's user") {
  TreeFixture tree;
  const std::string bytes("a\0b\n\xff", 5);
  tree.put("new", bytes);
  CHECK(tree.get("new") == bytes);
  struct stat status {};
  REQUIRE(lstat((tree.upper() + "/new").c_str(), &status) == 0);
  CHECK(status.st_uid == kDiskFirstId + kAgent);
  CHECK(status.st_gid == kDiskFirstId + kAgent);
  CHECK((status.st_mode & 07777) == 0644);
  CHECK(geteuid() == 0);
  CHECK(syscall(SYS_setfsuid, -1) == 0);
  CHECK(syscall(SYS_setfsgid, -1) == 0);
}

TEST_CASE("a write keeps the mode of an existing file unless one is given") {
  TreeFixture tree;
  tree.put("bin/run", "#!/bin/sh\n");
  CHECK(tree.files.stat("bin/run").mode == 0755);
  tree.put("bin/run", "#!/bin/sh\n", 04600);
  CHECK(tree.files.stat("bin/run").mode == 0600);
  tree.put("bin/run", "#!/bin/sh\n", 0);
  CHECK(tree.files.stat("bin/run").mode == 0);
  CHECK(tree.get("bin/run") == "#!/bin/sh\n");
}

TEST_CASE("a write without commit has no effect") {
  TreeFixture tree;
  {
    TreeFiles::Writer writer = tree.files.begin_write("README.md", {});
    writer.write("half");
    TreeFiles::Writer moved = std::move(writer);
    moved.write("more");
  }
  CHECK(tree.get("README.md") == "read me\n");
  CHECK(tree.files.list("").entries.size() == 3);
}

TEST_CASE("a write has a note while it has a temporary file") {
  TreeFixture tree;
  const UploadNotes notes{tree.directory.path() + "/uploads", "ws_3"};
  const TreeFiles files({{"/workspace", tree.mounts.tree.get()}}, kOwner, notes);
  tree.files.make_symlink("../deep/er/file", "bin/link");
  {
    TreeFiles::Writer writer = files.begin_write("bin/link", {});
    TreeFiles::Writer moved = std::move(writer);
    const auto names = base::list_directory(notes.directory);
    REQUIRE(names.size() == 1);
    char text[200] = {};
    REQUIRE(readlink((notes.directory + "/" + names[0]).c_str(), text, sizeof text - 1) > 0);
    CHECK(std::string(text) == "ws_3/workspace/deep/er/." + names[0]);
    CHECK(tree.files.list("deep/er").entries[0].name == "." + names[0]);
  }
  CHECK(base::list_directory(notes.directory).empty());
  TreeFiles::Writer writer = files.begin_write("new", {});
  writer.commit();
  CHECK(tree.files.stat("new").type == FileType::file);
  CHECK(refusal([&] { files.begin_write("gone/new", {}); }) == Code::not_found);
  { const TreeFiles::Writer dropped = std::move(writer); }
  CHECK(base::list_directory(notes.directory).empty());
}

TEST_CASE("a write follows a link inside and leaves the link") {
  TreeFixture tree;
  tree.files.make_symlink("../deep/er/file", "bin/link");
  tree.files.make_symlink("/workspace/bin/link", "second");
  tree.put("second", "through two links\n");
  CHECK(tree.get("deep/er/file") == "through two links\n");
  CHECK(tree.files.stat("bin/link").type == FileType::symlink);
  tree.files.make_symlink("not-yet", "dangling");
  tree.put("dangling", "made\n");
  CHECK(tree.get("not-yet") == "made\n");
  tree.files.make_symlink("../../../../etc/passwd", "escape");
  CHECK(refusal([&] { tree.put("escape", "x"); }) == Code::invalid_argument);
  CHECK(refusal([&] { tree.get("escape"); }) == Code::invalid_argument);
  tree.files.make_symlink("loop", "loop");
  CHECK(refusal([&] { tree.put("loop", "x"); }) == Code::invalid_argument);
}

TEST_CASE("entries are listed by name with type, size and target") {
  TreeFixture tree;
  tree.files.make_symlink("README.md", "a-link");
  const std::string odd = "new\nline \xff\"";
  tree.put(odd, "12345");
  Listing listing = tree.files.list("/workspace");
  REQUIRE(listing.entries.size() == 5);
  CHECK(listing.entries[0].name == "README.md");
  CHECK(listing.entries[0].size_bytes == 8);
  CHECK(listing.entries[1].link_target == "README.md");
  CHECK(listing.entries[2].type == FileType::directory);
  CHECK(listing.entries[4].name == odd);
  CHECK_FALSE(listing.truncated);
  Listing two = tree.files.list("", 2);
  CHECK(two.entries.size() == 2);
  CHECK(two.truncated);
  CHECK(refusal([&] { tree.files.list("README.md"); }) == Code::invalid_argument);
  CHECK(refusal([&] { tree.files.list("gone"); }) == Code::not_found);
  CHECK(tree.files.stat("a-link").link_target == "README.md");
  CHECK(tree.files.stat("").type == FileType::directory);
}

TEST_CASE("a listing limits its bytes of names and link targets") {
  TreeFixture tree;
  tree.files.make_directory("links");
  const std::string target(4000, 't');
  const size_t count = kMaxListingBytes / target.size() + 200;
  for (size_t n = 0; n < count; ++n) tree.files.make_symlink(target, "links/" + std::to_string(n));
  const Listing listing = tree.files.list("links");
  CHECK(listing.truncated);
  size_t bytes = 0;
  for (const auto& entry : listing.entries) bytes += entry.name.size() + entry.link_target.size();
  CHECK(bytes > kMaxListingBytes - 2 * target.size());
  CHECK(bytes < kMaxListingBytes + 2 * target.size());
}

TEST_CASE("directories are created with their parents and belong to the agent's user") {
  TreeFixture tree;
  tree.files.make_directory("/workspace/x/y/z/");
  tree.files.make_directory("x/y");
  struct stat status {};
  REQUIRE(lstat((tree.upper() + "/x/y").c_str(), &status) == 0);
  CHECK(status.st_uid == kDiskFirstId + kAgent);
  CHECK((status.st_mode & 07777) == 0755);
  CHECK(refusal([&] { tree.files.make_directory("README.md/x"); }) == Code::invalid_argument);
  CHECK(refusal([&] { tree.files.make_directory("README.md"); }) == Code::invalid_argument);
}

TEST_CASE("a move replaces nothing and takes directories along") {
  TreeFixture tree;
  tree.files.move("deep", "bin/moved");
  CHECK(tree.get("bin/moved/er/file") == "content\n");
  CHECK(refusal([&] { tree.files.move("README.md", "bin/run"); }) == Code::already_exists);
  CHECK(refusal([&] { tree.files.move("gone", "x"); }) == Code::not_found);
  CHECK(refusal([&] { tree.files.move("bin", "bin/moved/x"); }) == Code::invalid_argument);
}

TEST_CASE("removal takes a link, not its target; a full directory only on request") {
  TreeFixture tree;
  tree.files.make_symlink("deep", "link");
  tree.files.remove("link", true);
  CHECK(tree.get("deep/er/file") == "content\n");
  CHECK(refusal([&] { tree.files.remove("deep", false); }) == Code::conflict);
  tree.files.remove("deep", true);
  CHECK(refusal([&] { tree.files.remove("deep", true); }) == Code::not_found);
  tree.files.make_directory("empty");
  tree.files.remove("empty", false);
  CHECK(tree.files.list("").entries.size() == 2);
}

TEST_CASE("the root of the tree cannot be removed, moved or written") {
  TreeFixture tree;
  for (const std::string path : {"", "/", "//", ".", "..", "bin/..", "bin/.", "bin/../"}) {
    INFO(path);
    CHECK(refusal([&] { tree.files.remove(path, true); }) == Code::invalid_argument);
    CHECK(refusal([&] { tree.files.move(path, "x"); }) == Code::invalid_argument);
    CHECK(refusal([&] { tree.put(path, "x"); }) == Code::invalid_argument);
  }
  CHECK(refusal([&] { tree.put("bin", "x"); }) == Code::conflict);
  CHECK(tree.files.list("").entries.size() == 3);
}

TEST_CASE("FIFOs, devices and sockets are refused at once") {
  TreeFixture tree;
  // Owned by the agent's user on disk, as if created inside.
  auto make = [&](const char* name, mode_t type, dev_t device) {
    const std::string path = tree.upper() + "/" + name;
    REQUIRE(mknod(path.c_str(), type | 0666, device) == 0);
    REQUIRE(lchown(path.c_str(), kDiskFirstId + kAgent, kDiskFirstId + kAgent) == 0);
  };
  make("fifo", S_IFIFO, 0);
  make("null", S_IFCHR, makedev(1, 3));
  make("socket", S_IFSOCK, 0);
  for (const char* path : {"fifo", "null", "socket"}) {
    INFO(path);
    CHECK(tree.files.stat(path).type == FileType::other);
    Code code = refusal([&] { tree.get(path); });
    CHECK((code == Code::invalid_argument || code == Code::permission_denied));
    CHECK(refusal([&] { tree.put(path, "x"); }) == Code::invalid_argument);
    tree.files.remove(path, false);
  }
}

TEST_CASE("hostile paths end in a refusal or inside") {
  TreeFixture tree;
  tree.files.make_symlink("/etc", "link");
  tree.files.make_symlink("/proc/self/root", "magic");
  for (const std::string path :
       {"../../../etc/passwd", "/etc/passwd", "link/passwd", "magic/etc/passwd",
        "bin/../../etc/passwd", "/proc/self/environ"}) {
    INFO(path);
    CHECK(refusal([&] { tree.get(path); }) == Code::invalid_argument);
    CHECK(refusal([&] { tree.put(path, "x"); }) == Code::invalid_argument);
  }
  CHECK(refusal([&] { tree.get(std::string("READ\0ME", 7)); }) == Code::invalid_argument);
  CHECK(refusal([&] { tree.put(std::string("READ\0ME", 7), "x"); }) == Code::invalid_argument);
  CHECK(refusal([&] { tree.put(std::string(256, 'n'), "x"); }) == Code::invalid_argument);
  CHECK(refusal([&] { tree.get(std::string(5000, 'n')); }) == Code::invalid_argument);
  CHECK(tree.get("../workspace/./bin/../README.md") == "read me\n");
}

TEST_CASE("a link has the same target on the host as inside") {
  TreeFixture tree;
  tree.files.make_directory("workspace/home");
  tree.put("workspace/README.md", "another one\n");
  tree.files.make_symlink("/workspace/README.md", "absolute");
  tree.files.make_symlink("/home/user/note", "at-home");
  tree.files.make_symlink("../../workspace/bin", "/home/user/up");
  tree.files.make_symlink("/workspace", "whole");
  CHECK(tree.get("absolute") == "read me\n");
  tree.put("absolute", "changed\n");
  CHECK(tree.get("README.md") == "changed\n");
  CHECK(tree.get("workspace/README.md") == "another one\n");
  tree.put("at-home", "of the home\n");
  CHECK(tree.get("/home/user/note") == "of the home\n");
  tree.put("/home/user/up/tool", "x", 0755);
  CHECK(tree.files.stat("/workspace/bin/tool").mode == 0755);
  CHECK(tree.get("whole/whole/absolute") == "changed\n");
  tree.files.make_directory("whole/made/deep");
  CHECK(tree.files.stat("made/deep").type == FileType::directory);
  CHECK(refusal([&] { tree.files.move("README.md", "/home/user/readme"); }) == Code::unsupported);
  try {
    tree.files.make_symlink("/etc", "outside");
    tree.get("outside/passwd");
    FAIL("no error was thrown");
  } catch (const base::Error& error) {
    CHECK(error.message() ==
          "outside/passwd (through the link /workspace/outside) is outside the workspace");
  }
}

TEST_CASE("a directory writable only by the inside root refuses new files") {
  TreeFixture tree;
  tree.files.make_directory("roots");
  REQUIRE(chown(tree.at("roots").c_str(), kFirstHostId, kFirstHostId) == 0);
  CHECK(refusal([&] { tree.put("roots/x", "x"); }) == Code::permission_denied);
  CHECK(refusal([&] { tree.files.make_directory("roots/x"); }) == Code::permission_denied);
  CHECK(syscall(SYS_setfsuid, -1) == 0);
}

TEST_CASE("mounts below the tree cannot be reached") {
  TreeFixture tree;
  tree.files.make_directory("mnt");
  // A detached mount takes no mounts, so attach the tree in a namespace of this thread.
  in_own_namespace([&] {
    const std::string place = tree.directory.path() + "/place";
    base::make_directories(place);
    base::attach_mount(tree.mounts.tree.get(), place);
    REQUIRE(mount("proc", (place + "/mnt").c_str(), "proc", 0, nullptr) == 0);
    CHECK(refusal([&] { tree.get("mnt/version"); }) == Code::invalid_argument);
    CHECK(refusal([&] { tree.files.list("mnt"); }) == Code::invalid_argument);
    CHECK(refusal([&] { tree.put("mnt/sys/kernel/core_pattern", "x"); }) == Code::invalid_argument);
    CHECK(refusal([&] { tree.files.remove("mnt", true); }) == Code::conflict);
    CHECK(tree.get("README.md") == "read me\n");
    umount2((place + "/mnt").c_str(), MNT_DETACH);
    umount2(place.c_str(), MNT_DETACH);
  });
}

TEST_CASE("swapping a directory with a link to the host's root never leads out") {
  TreeFixture tree;
  tree.files.make_directory("swap/etc");
  tree.put("swap/etc/moorage-race", "inside\n");
  tree.files.make_symlink("/", "away");
  const bool passwd_before = base::path_exists("/etc/passwd");
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    while (!stop) {
      renameat2(tree.mounts.tree.get(), "swap", tree.mounts.tree.get(), "away", RENAME_EXCHANGE);
    }
  });
  int reads = 0;
  int writes = 0;
  for (int i = 0; i < 1000; ++i) {
    try {
      const std::string bytes = tree.get("swap/etc/moorage-race");
      CHECK(bytes.substr(0, 6) == "inside");
      ++reads;
    } catch (const base::Error&) {
    }
    try {
      tree.put("swap/etc/moorage-race", "inside " + std::to_string(i));
      ++writes;
    } catch (const base::Error&) {
    }
    CHECK_THROWS_AS(tree.get("swap/etc/passwd"), base::Error);
    try {
      tree.files.remove("swap/etc/passwd", true);
    } catch (const base::Error&) {
    }
  }
  stop = true;
  swapper.join();
  CHECK(reads > 0);
  CHECK(writes > 0);
  CHECK_FALSE(base::path_exists("/etc/moorage-race"));
  CHECK(base::path_exists("/etc/passwd") == passwd_before);
}

TEST_CASE("a tree of 3,000 levels is removed, and 100,000 entries are listed", "[slow]") {
  TreeFixture tree;
  tree.files.make_directory("top");
  Fd level = base::open_directory(tree.at("top"));
  syscall(SYS_setfsuid, kOwner);  // the layers accept no files of user 0
  syscall(SYS_setfsgid, kOwner);
  int made = 0;
  for (; made < 3000 && mkdirat(level.get(), "d", 0755) == 0; ++made) {
    level = base::open_file_at(level.get(), "d", O_RDONLY | O_DIRECTORY);
  }
  syscall(SYS_setfsuid, 0);
  syscall(SYS_setfsgid, 0);
  REQUIRE(made == 3000);
  level.reset();
  CHECK(tree.files.list("top").entries.size() == 1);
  tree.files.remove("top", true);
  CHECK(refusal([&] { tree.files.stat("top"); }) == Code::not_found);

  base::make_directories(tree.upper() + "/many", 0755);
  Fd many = base::open_directory(tree.upper() + "/many");
  for (int i = 0; i < 100'001; ++i) {
    REQUIRE(mknodat(many.get(), std::to_string(i).c_str(), S_IFREG | 0644, 0) == 0);
  }
  Listing listing = tree.files.list("many");
  CHECK(listing.entries.size() == 100'000);
  CHECK(listing.truncated);
}

}  // namespace moorage::layers
