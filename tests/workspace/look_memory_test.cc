#include "workspace/look_memory.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "storage_fixture.h"
#include "workspace/layer_walk.h"

namespace moorage::workspace {

TEST_CASE("all looks together remember no more than one share, and give it back") {
  REQUIRE(LookMemory::all_used_bytes() == 0);
  {
    LookMemory one(kAllLooksBytes);
    LookMemory other(kAllLooksBytes);
    CHECK(one.take(kAllLooksBytes - 10));
    CHECK_FALSE(other.take(11));
    CHECK(other.take(10));
    CHECK_FALSE(one.take(1));
    one.give(5);
    CHECK(other.take(5));
    LookMemory small(4);
    one.give(5);
    CHECK_FALSE(small.take(5));
    CHECK(small.take(4));
    CHECK(LookMemory::all_used_bytes() == kAllLooksBytes - 1);
  }
  CHECK(LookMemory::all_used_bytes() == 0);
}

TEST_CASE("the names of a directory are charged while it is open, and the rest is left out") {
  TemporaryDirectory directory;
  for (int n = 0; n < 200; ++n)
    std::ofstream(directory.path() + "/" + std::string(200, 'n') + std::to_string(n));
  LayerWalk walk({directory.path()}, [](const std::string&) { return false; });
  LookMemory memory(10'000);
  walk.charge(&memory);
  {
    const auto root = walk.root();
    const auto open = walk.open(root);
    CHECK(open.names().size() > 10);
    CHECK(open.names().size() < 50);
    CHECK(walk.truncated());
    CHECK(memory.used_bytes() > 5'000);
  }
  CHECK(memory.used_bytes() == 0);
}

}  // namespace moorage::workspace
