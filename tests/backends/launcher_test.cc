#include "backends/launcher.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/files.h"

using namespace moorage;

namespace {

struct Directory {
  std::string path = "/tmp/moorage-launcher-XXXXXX";
  Directory() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Directory() { base::remove_tree(path); }
};

}  // namespace

TEST_CASE("a warden's copy that a power cut left without its bytes is made again") {
  const Directory directory;
  const std::string program = directory.path + "/moorage-warden";
  base::write_file(program, "the program", 0755);
  const std::string copy = backends::copy_warden(program, directory.path + "/images");
  CHECK(base::read_file(copy) == "the program");
  for (const off_t left : {0, 4}) {
    REQUIRE(truncate(copy.c_str(), left) == 0);
    CHECK(backends::copy_warden(program, directory.path + "/images") == copy);
    CHECK(base::read_file(copy) == "the program");
  }
  struct stat before {};
  struct stat after {};
  REQUIRE(stat(copy.c_str(), &before) == 0);
  CHECK((before.st_mode & 07777) == 0111);
  backends::copy_warden(program, directory.path + "/images");
  REQUIRE(stat(copy.c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
}
