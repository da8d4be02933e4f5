#include "base/size_text.h"

#include <catch2/catch.hpp>

using namespace moorage::base;

TEST_CASE("a size is read in every spelling that people use") {
  for (const char* text : {"8G", "8GiB", "8 GiB", "8GB", "8g", "8192M", "8.0G", "8589934592"}) {
    CAPTURE(text);
    CHECK(parse_size(text) == 8ULL << 30);
  }
  CHECK(parse_size("1.5K") == 1536U);
  CHECK(parse_size("10B") == 10U);
  CHECK(parse_size("0") == 0U);
  CHECK(parse_size("9223372036854775807") == 9223372036854775807ULL);
  for (const char* text :
       {"", "G", "GiB", "8X", "8GX", "8Gi", "-1", "1.2.3G", "1e3", " 8G", "8G "}) {
    CAPTURE(text);
    CHECK_FALSE(parse_size(text));
  }
  for (const char* text : {"99999999999999999999", "99999999999TiB", "99999999999.5T"}) {
    CAPTURE(text);
    CHECK(parse_size(text) == UINT64_MAX);
  }
}

TEST_CASE("an exact size reads back the same") {
  for (const uint64_t bytes : {uint64_t{1000001}, uint64_t{1536} << 20, uint64_t{8} << 30})
    CHECK(parse_size(exact_size_text(bytes)) == bytes);
}

TEST_CASE("one thing and several are counted in the grammar of each") {
  CHECK(count_text(1, "tag") + " " + verb_text(1, "differ") == "1 tag differs");
  CHECK(count_text(2, "tag") + " " + verb_text(2, "differ") == "2 tags differ");
  CHECK(count_text(0, "entry") + " " + verb_text(0, "were") == "0 entries were");
  CHECK(count_text(1, "entry") + " " + verb_text(1, "were") == "1 entry was");
  CHECK(count_text(1, "sandbox") + " " + verb_text(1, "have") == "1 sandbox has");
  CHECK(count_text(3, "sandbox") + " " + verb_text(3, "have") == "3 sandboxes have");
}
