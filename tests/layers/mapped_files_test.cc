// Finds the files of a sandbox that are mapped for writing.
#include "layers/mapped_files.h"

#include <catch2/catch.hpp>

using namespace moorage;
using layers::shared_mappings;

namespace {

std::vector<std::pair<std::string, ino_t>> mapped(std::string_view maps) {
  std::vector<std::pair<std::string, ino_t>> found;
  for (auto& [path, inode] : shared_mappings(maps, "/workspace")) found.emplace_back(path, inode);
  return found;
}

}  // namespace

TEST_CASE("only writable shared mappings below the place count") {
  const std::string maps =
      "55a0-55a1 r--p 00000000 fe:00 1                     /usr/bin/python3\n"
      "7f10-7f20 rw-s 00000000 00:2f 77                    /workspace/build/db file\n"
      "7f20-7f30 rw-p 00000000 00:2f 78                    /workspace/private\n"
      "7f30-7f40 r--s 00000000 00:2f 79                    /workspace/read\n"
      "7f50-7f60 rw-s 00000000 00:2f 81                    /workspaces/other\n"
      "7f60-7f70 rw-s 00000000 00:01 82                    /dev/zero (deleted)\n"
      "7f70-7f80 rw-s 00000000 00:2f 83                    /workspace/a\\012b\n"
      "7f80-7f90 rw-s 00000000 00:00 0 \n"
      "7f90-7fa0 rw-s\n"
      "short";
  CHECK(mapped(maps) ==
        std::vector<std::pair<std::string, ino_t>>{{"build/db file", 77}, {"a\nb", 83}});
  CHECK(mapped("").empty());
}

TEST_CASE("a name may end in \" (deleted)\", and a removed file keeps its inode number") {
  const std::string maps =
      "7f10-7f20 rw-s 00000000 00:2f 80                    /workspace/notes (deleted)\n"
      "7f20-7f30 rw-s 00000000 00:2f 81                    /workspace/notes (deleted) (deleted)\n";
  CHECK(mapped(maps) == std::vector<std::pair<std::string, ino_t>>{
                            {"notes (deleted)", 80}, {"notes (deleted) (deleted)", 81}});
}
