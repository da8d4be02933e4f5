#include "egress/ssh/git_advertisement.h"

#include <catch2/catch.hpp>

using moorage::egress::GitAdvertisement;

TEST_CASE("an advertisement ends at its flush, however its bytes come") {
  const std::string list = "000eversion 2\n0015agent=git/2.39.5\n0000";
  const std::string all = list + "0008NAK\n";
  for (size_t piece = 1; piece <= all.size(); ++piece) {
    GitAdvertisement advertisement;
    size_t taken = 0;
    for (size_t at = 0; at < all.size() && !advertisement.is_over(); at += piece)
      taken += advertisement.take(std::string_view(all).substr(at, piece));
    CHECK(taken == list.size());
    CHECK((advertisement.is_over() && !advertisement.is_broken()));
    CHECK(advertisement.is_version_2());
  }
}

TEST_CASE("an advertisement of version 0 is recognized by its first packet") {
  GitAdvertisement advertisement;
  const std::string ref = "003d" + std::string(40, 'a') + " refs/heads/main\n";
  REQUIRE(ref.size() == 61);
  advertisement.take(ref);
  CHECK((advertisement.has_first() && !advertisement.is_version_2() && !advertisement.is_over()));
  CHECK(advertisement.take("0000") == 4);
  CHECK(advertisement.is_over());
}

TEST_CASE("bytes that are not git's are recognized") {
  for (const char* bytes : {"Welcome", "This account is disabled.\n", "0003", "0001", "00-4abcd"}) {
    GitAdvertisement advertisement;
    advertisement.take(bytes);
    CHECK((advertisement.is_broken() && !advertisement.is_over()));
  }
  GitAdvertisement refused;
  refused.take("001cERR access denied: acme\n");
  CHECK(refused.error() == "access denied: acme\n");
}
