#include "repo_cache/formats/lfs_pointer.h"

#include <catch2/catch.hpp>
#include <string>

using moorage::repo_cache::is_lfs_pointer;

TEST_CASE("a pointer of Git LFS is known by its content") {
  const std::string version = "version https://git-lfs.github.com/spec/v1\n";
  const std::string hash = "oid sha256:" + std::string(64, 'a') + "\n";
  CHECK(is_lfs_pointer(version + hash + "size 0\n"));
  CHECK(is_lfs_pointer(version + "ext-0-foo sha256:" + std::string(64, 'b') + "\n" + hash +
                       "size 132735\n"));
  CHECK(is_lfs_pointer("version https://hawser.github.com/spec/v1\n" + hash + "size 1"));
  for (const std::string& other :
       {std::string(), std::string("pointer"), version, version + hash, version + "size 1\n",
        hash + "size 1\n", version + "oid sha256:aa\nsize 1\n", version + hash + "size one\n",
        version + hash + "size 1\n" + std::string(1024, 'x'), "\n" + version + hash + "size 1\n"}) {
    INFO(other);
    CHECK_FALSE(is_lfs_pointer(other));
  }
}
