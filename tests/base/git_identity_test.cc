#include "base/git_identity.h"

#include <catch2/catch.hpp>
#include <string>

using moorage::base::is_git_identity;

TEST_CASE("names and addresses of commits have no controls and something that git keeps") {
  for (const char* good :
       {"Ada Lovelace", "ada@example.org", "J\xc3\xbcrgen", "O'Brien, Jr.", "x"}) {
    INFO(good);
    CHECK(is_git_identity(good));
  }
  for (const std::string& bad :
       {std::string(), std::string("a\nb"), std::string("a\r"), std::string("a\0b", 3),
        std::string("a\x1b[31m"), std::string("a\x7f"), std::string("a\xc2\x9b"), std::string("<a"),
        std::string("a>"), std::string("\xff"), std::string(" . "), std::string("'\""),
        std::string(201, 'a')}) {
    INFO(bad);
    CHECK_FALSE(is_git_identity(bad));
  }
}
