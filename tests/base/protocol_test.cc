#include "base/wire/protocol.h"

#include <catch2/catch.hpp>

using namespace moorage::base;

TEST_CASE("two releases speak the highest common protocol") {
  CHECK(common_protocol({1, 1}, {1, 1}) == 1);
  CHECK(common_protocol({1, 3}, {2, 5}) == 3);
  CHECK(common_protocol({2, 5}, {1, 3}) == 3);
  CHECK(common_protocol({1, 4}, {2, 2}) == 2);
  CHECK_FALSE(common_protocol({1, 2}, {3, 4}));
  CHECK_FALSE(common_protocol({3, 4}, {1, 2}));
}

TEST_CASE("protocols are printed in words") {
  CHECK(to_string(Protocols{2, 2}) == "protocol 2");
  CHECK(to_string(Protocols{1, 3}) == "protocols 1 to 3");
}

TEST_CASE("this release speaks with all earlier ones") {
  CHECK(kProtocols.oldest == 1);
  CHECK(kProtocols.newest >= kProtocols.oldest);
}
