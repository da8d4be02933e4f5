#include "packs/link_table.h"

#include <catch2/catch.hpp>

#include "packs/tar_fixture.h"

namespace moorage::packs {

TEST_CASE("a link table returns the first path of each of any number of files", "[archive]") {
  size_t files_made = 0;
  LinkTable table([&files_made] {
    ++files_made;
    return unnamed_file();
  });
  CHECK(files_made == 0);
  constexpr ino_t kFiles = 50'000;  // it grows several times
  for (ino_t inode = 0; inode < kFiles; ++inode) {
    const std::string path =
        "layers/0/tree/" + std::string(inode % 700, 'p') + std::to_string(inode);
    REQUIRE_FALSE(table.first_path({7, inode}, path));
    if (inode % 1000 == 0) REQUIRE(table.first_path({7, inode}, "another") == path);
  }
  for (ino_t inode = 0; inode < kFiles; inode += 7) {
    const std::string path =
        "layers/0/tree/" + std::string(inode % 700, 'p') + std::to_string(inode);
    REQUIRE(table.first_path({7, inode}, "a later one") == path);
  }
  // The same number on another file system is another file.
  CHECK_FALSE(table.first_path({8, 1}, "on another"));
  CHECK(table.first_path({8, 1}, "again") == "on another");
}

}  // namespace moorage::packs
