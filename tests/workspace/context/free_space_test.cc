#include "workspace/context/free_space.h"

#include <catch2/catch.hpp>

#include "base/error.h"

namespace moorage::workspace {
namespace {

constexpr uint64_t kMiB = 1 << 20;

base::Space space(uint64_t total_mib, uint64_t free_mib, uint64_t inodes, uint64_t free_inodes) {
  return {total_mib * kMiB, free_mib * kMiB, inodes, free_inodes};
}

RoomLevel level(const base::Space& of, const Options& options = {}) {
  return room_of(of, options).level();
}

TEST_CASE("by default 1 GiB is reserved, or 2 % of a small disk") {
  CHECK(room_of(space(1 << 20, 9, 9, 9), {}).min_free_bytes == 1024 * kMiB);
  CHECK(room_of(space(1000, 9, 9, 9), {}).min_free_bytes == 20 * kMiB);
  CHECK(room_of(space(1000, 9, 10'000'000, 9), {}).min_free_inodes == 20'000);
  CHECK(room_of(space(1000, 9, 100'000, 9), {}).min_free_inodes == 2'000);
}

TEST_CASE("the level falls at the reserve and at half of it, by bytes and by files") {
  Options options;
  options.min_free_bytes = 100 * kMiB;
  options.min_free_inodes = 1000;
  CHECK(level(space(1000, 100, 5000, 1000), options) == RoomLevel::enough);
  CHECK(level(space(1000, 99, 5000, 1000), options) == RoomLevel::low);
  CHECK(level(space(1000, 50, 5000, 1000), options) == RoomLevel::low);
  CHECK(level(space(1000, 49, 5000, 1000), options) == RoomLevel::short_of);
  CHECK(level(space(1000, 100, 5000, 999), options) == RoomLevel::low);
  CHECK(level(space(1000, 100, 5000, 499), options) == RoomLevel::short_of);
}

TEST_CASE("a file system without an inode limit never lacks inodes") {
  CHECK(level(space(1000, 900, 0, 0)) == RoomLevel::enough);
}

TEST_CASE("an upload larger than the free space is refused before it begins") {
  Options options;
  options.store = "/";
  options.min_free_bytes = 1;
  options.min_free_inodes = 1;
  CHECK_NOTHROW(require_room(options, "no"));
  try {
    require_room(options, "cannot write the file", 1ULL << 60);
    FAIL("taken");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::resource_exhausted);
    CHECK(error.message().find("cannot write the file") != std::string::npos);
    CHECK(error.message().find("more needed") != std::string::npos);
  }
}

}  // namespace
}  // namespace moorage::workspace
