// Which files of a sandbox are mapped to be written to.
#include "workspace/mapped_files.h"

#include <catch2/catch.hpp>

using namespace moorage;
using workspace::mapped_paths;

TEST_CASE("only writable, shared mappings below the place count, and what is not removed") {
  const std::string maps =
      "55a0-55a1 r--p 00000000 fe:00 1                     /usr/bin/python3\n"
      "7f10-7f20 rw-s 00000000 00:2f 77                    /workspace/build/db file\n"
      "7f20-7f30 rw-p 00000000 00:2f 78                    /workspace/private\n"
      "7f30-7f40 r--s 00000000 00:2f 79                    /workspace/read\n"
      "7f40-7f50 rw-s 00000000 00:2f 80                    /workspace/gone (deleted)\n"
      "7f50-7f60 rw-s 00000000 00:2f 81                    /workspaces/other\n"
      "7f60-7f70 rw-s 00000000 00:01 82                    /dev/zero (deleted)\n"
      "7f70-7f80 rw-s 00000000 00:2f 83                    /workspace/a\\012b\n"
      "7f80-7f90 rw-s 00000000 00:00 0 \n"
      "7f90-7fa0 rw-s\n"
      "short";
  CHECK(mapped_paths(maps, "/workspace") == std::vector<std::string>{"build/db file", "a\nb"});
  CHECK(mapped_paths("", "/workspace").empty());
}
