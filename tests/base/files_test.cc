#include "base/os/atomic_file.h"
#include "base/os/files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "temporary_directory.h"

using namespace moorage;
using base::Fd;
using test::code_thrown_by;

namespace {

mode_t mode_of(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

}  // namespace

TEST_CASE("writing a file replaces it whole and leaves no temporary file") {
  test::TemporaryDirectory directory;
  const auto write = GENERATE(&base::write_file, &base::write_file_durable);
  const mode_t before = umask(077);
  write(directory / "f", "old and longer", 0600);
  write(directory / "f", "new", 0644);
  umask(before);
  CHECK(base::read_file(directory / "f") == "new");
  CHECK(mode_of(directory / "f") == 0644);
  CHECK(base::list_directory(directory.path()) == std::vector<std::string>{"f"});
  CHECK(code_thrown_by([&] { write(directory / "none/f", "x", 0600); }) == "not_found");
}

TEST_CASE("a write that cannot be committed leaves no file behind") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "taken/inside");
  CHECK(code_thrown_by([&] { base::write_file(directory / "taken", "x"); }) != "nothing thrown");
  CHECK(base::list_directory(directory.path()) == std::vector<std::string>{"taken"});
}

TEST_CASE("a file that replaces nothing keeps the one that appeared meanwhile") {
  test::TemporaryDirectory directory;
  {
    base::AtomicFile file(directory / "f", {.suffix = ".part", .replaces = false});
    file.write("new");
    base::write_file(directory / "f", "mine");
    CHECK(code_thrown_by([&] { file.commit_durable(); }) == "already_exists");
  }
  CHECK(base::read_file(directory / "f") == "mine");
  CHECK(base::list_directory(directory.path()) == std::vector<std::string>{"f"});
}

TEST_CASE("concurrent writers leave the complete bytes of one of them") {
  test::TemporaryDirectory directory;
  std::vector<std::thread> writers;
  for (char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&directory, letter] {
      for (int i = 0; i < 50; ++i) {
        base::write_file(directory / "f", std::string(100'000, letter));
      }
    });
  }
  for (auto& writer : writers) writer.join();
  const std::string bytes = base::read_file(directory / "f");
  CHECK(bytes == std::string(100'000, bytes.at(0)));
  CHECK(base::list_directory(directory.path()).size() == 1);
}

TEST_CASE("reading has a limit, and absence is an error unless the caller allows it") {
  test::TemporaryDirectory directory;
  base::write_file(directory / "f", std::string(100, 'x'));
  CHECK(base::read_file(directory / "f", 100).size() == 100);
  CHECK(code_thrown_by([&] { base::read_file(directory / "f", 99); }) == "resource_exhausted");
  CHECK(code_thrown_by([&] { base::read_file(directory / "none"); }) == "not_found");
  CHECK_FALSE(base::read_file_if_exists(directory / "none"));
  CHECK_FALSE(base::read_file("/proc/self/stat").empty());
}

TEST_CASE("directories are created with their parents, and a file in the way is reported") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "a/b//c/");
  base::make_directories(directory / "a/b/c");
  CHECK(mode_of(directory / "a/b/c") == 0700);
  const mode_t before = umask(077);
  base::make_directories(directory / "open/to/all", 0755);
  umask(before);
  CHECK(mode_of(directory / "open") == 0755);
  CHECK(mode_of(directory / "open/to/all") == 0755);
  base::write_file(directory / "a/file", "");
  CHECK(code_thrown_by([&] { base::make_directories(directory / "a/file/d"); }) == "io");
  base::sync_directory(directory / "a");
  base::sync_file_system(directory.path());
}

TEST_CASE("rename_into_place replaces nothing, not even an empty directory") {
  test::TemporaryDirectory directory;
  base::make_directories(directory / "from");
  base::make_directories(directory / "to");
  CHECK(code_thrown_by([&] { base::rename_into_place(directory / "from", directory / "to"); }) ==
        "already_exists");
  base::rename_into_place(directory / "from", directory / "new");
  CHECK(base::path_exists(directory / "new"));
  CHECK_FALSE(base::path_exists(directory / "from"));
}

TEST_CASE("path_exists sees a dangling link, and lists are sorted") {
  test::TemporaryDirectory directory;
  REQUIRE(symlink("nowhere", (directory / "link").c_str()) == 0);
  base::write_file(directory / "b", "");
  base::write_file(directory / ".a", "");
  CHECK(base::path_exists(directory / "link"));
  CHECK_FALSE(base::path_exists(directory / "b/under"));
  const std::vector<std::string> names{".a", "b", "link"};
  Fd fd = base::open_file(directory.path(), O_PATH | O_DIRECTORY);
  CHECK(base::list_directory(fd.get()) == names);
  CHECK(base::list_directory(fd.get()) == names);
}

TEST_CASE("an append-only file takes appends only, until the attribute is cleared") {
  test::TemporaryDirectory directory;
  const std::string path = directory / "output";
  base::write_file(path, "first");
  Fd fd = base::open_file(path, O_RDONLY);
  if (geteuid() != 0 || !base::set_append_only(fd.get(), true)) {
    WARN("SKIPPED: needs root and a file system with attributes");
    return;
  }
  CHECK(open(path.c_str(), O_WRONLY | O_CLOEXEC) == -1);
  CHECK(truncate(path.c_str(), 0) == -1);
  CHECK(unlink(path.c_str()) == -1);
  base::write_all(base::open_file(path, O_WRONLY | O_APPEND).get(), " second");
  CHECK(base::read_file(path) == "first second");
  CHECK(base::set_append_only(fd.get(), false));
  CHECK(truncate(path.c_str(), 0) == 0);
}

TEST_CASE("a file system without attributes is reported") {
  Fd fd = base::open_file("/proc/self/stat", O_RDONLY);
  CHECK_FALSE(base::set_append_only(fd.get(), true));
}

TEST_CASE("space is reported in bytes") {
  base::Space space = base::file_system_space("/");
  CHECK(space.total_bytes > (1 << 20));
  CHECK(space.free_bytes <= space.total_bytes);
}
