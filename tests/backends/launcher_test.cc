#include "backends/launcher.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/os/files.h"

using namespace moorage;

namespace {

struct Directory {
  std::string path = "/tmp/moorage-launcher-XXXXXX";
  Directory() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Directory() { base::remove_tree(path); }
};

}  // namespace

TEST_CASE("a warden copy truncated by a power cut is made again") {
  const Directory directory;
  const std::string program = directory.path + "/moorage-warden";
  base::write_file(program, "the program", 0755);
  const std::string copy = backends::copy_program(program, directory.path + "/images", 0111);
  CHECK(base::read_file(copy) == "the program");
  for (const off_t left : {0, 4}) {
    REQUIRE(truncate(copy.c_str(), left) == 0);
    CHECK(backends::copy_program(program, directory.path + "/images", 0111) == copy);
    CHECK(base::read_file(copy) == "the program");
  }
  struct stat before {};
  struct stat after {};
  REQUIRE(stat(copy.c_str(), &before) == 0);
  CHECK((before.st_mode & 07777) == 0111);
  backends::copy_program(program, directory.path + "/images", 0111);
  REQUIRE(stat(copy.c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
}

TEST_CASE("a replaced program is copied again, and the old copy removed") {
  const Directory directory;
  const std::string images = directory.path + "/images";
  const std::string program = directory.path + "/moorage-warden";
  const std::string other = directory.path + "/moorage-launch";
  base::write_file(program, "old", 0755);
  base::write_file(other, "other", 0755);
  const std::string before = backends::copy_program(program, images, 0111);
  const std::string stays = backends::copy_program(other, images, 0100);
  base::write_file(program + ".new", "the new one", 0755);
  REQUIRE(rename((program + ".new").c_str(), program.c_str()) == 0);
  const std::string now = backends::copy_program(program, images, 0111);
  CHECK(base::read_file(now) == "the new one");
  CHECK_FALSE(base::path_exists(before));
  CHECK(base::path_exists(stays));
}
