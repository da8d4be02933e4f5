#include "base/os/file_time.h"

#include <catch2/catch.hpp>

using moorage::base::file_time_ns;
using moorage::base::modified_at;

TEST_CASE("the time of a file counts from 1970 in both directions") {
  CHECK(file_time_ns({0, 0}) == 0);
  CHECK(file_time_ns({1'795'000'000, 999'999'999}) == 1'795'000'000'999'999'999);
  CHECK(file_time_ns({-1, 999'999'999}) == -1);
  CHECK(file_time_ns({9'223'372'036, 854'775'807}) == INT64_MAX);
}

TEST_CASE("the time of a file that does not fit becomes the nearest that does") {
  CHECK(file_time_ns({9'223'372'036, 854'775'808}) == INT64_MAX);
  CHECK(file_time_ns({13'569'465'600, 0}) == INT64_MAX);  // 2400-01-01
  CHECK(file_time_ns({INT64_MAX, 0}) == INT64_MAX);
  CHECK(file_time_ns({-13'569'465'600, 0}) == INT64_MIN);
  CHECK(file_time_ns({INT64_MIN, 999'999'999}) == INT64_MIN);
}

TEST_CASE("a time to set is the one that was read") {
  for (const int64_t ns :
       {int64_t{0}, int64_t{-1}, int64_t{1'795'000'000'999'999'999}, INT64_MAX, INT64_MIN}) {
    CHECK(file_time_ns(modified_at(ns)[1]) == ns);
    CHECK(modified_at(ns)[0].tv_nsec == UTIME_NOW);
  }
}
