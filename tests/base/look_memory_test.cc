#include "base/look_memory.h"

#include <catch2/catch.hpp>

namespace moorage::base {

TEST_CASE("all readers together stay within one budget, and return it") {
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

TEST_CASE("an operation is crowded by others, and not by what it holds itself") {
  LookMemory whole(kAllLooksBytes);
  {
    LookMemory text(whole, 100);
    LookMemory contents(whole, kAllLooksBytes);
    CHECK_FALSE(text.take(101));
    CHECK(text.take(60));
    CHECK(contents.left_bytes() == kAllLooksBytes - 60);
    CHECK(contents.take(kAllLooksBytes - 80));
    CHECK_FALSE(contents.take(21));
    CHECK_FALSE(text.take(21));
    CHECK_FALSE(contents.crowded());
    CHECK_FALSE(text.crowded());
    LookMemory rules(contents, 10);
    CHECK(rules.take(10));
    CHECK(whole.used_bytes() == kAllLooksBytes - 10);
    LookMemory others(kAllLooksBytes);
    CHECK(others.take(5));
    CHECK_FALSE(contents.take(6));
    CHECK(contents.crowded());
    CHECK_FALSE(text.crowded());
    CHECK(text.take(5));
  }
  CHECK(whole.used_bytes() == 0);
  CHECK(LookMemory::all_used_bytes() == 0);
}

TEST_CASE("a share is returned at its end, and one that does not fit takes nothing") {
  LookMemory memory(10);
  {
    const MemoryShare seven(memory, 7);
    CHECK(seven);
    CHECK_FALSE(MemoryShare(memory, 4));
    CHECK(memory.used_bytes() == 7);
  }
  CHECK(memory.used_bytes() == 0);
}

}  // namespace moorage::base
