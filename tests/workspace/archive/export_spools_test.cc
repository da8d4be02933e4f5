// The space that one user's unread exports take is bounded, counted and released.
#include "workspace/archive/export_spools.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>

#include "thrown_code.h"
#include "workspace/context/context_fixture.h"

using namespace moorage;
using namespace moorage::base;
using namespace moorage::workspace;

namespace {

constexpr uint32_t kOne = 61001;
constexpr uint32_t kOther = 61002;
constexpr size_t kPiece = 1 << 20;

}  // namespace

TEST_CASE("a user has a bounded number of exports, and others have their own", "[archive]") {
  ContextFixture fixture;
  ExportSpools spools(fixture.context);
  std::vector<std::shared_ptr<ByteSpool>> held;
  for (int n = 0; n < 3; ++n) held.push_back(spools.make(kOne));
  CHECK(code_thrown_by([&] { spools.make(kOne); }) == base::Code::conflict);
  CHECK(spools.make(kOther));
  held.pop_back();  // its client left, and its writer ended
  CHECK(spools.make(kOne));
}

TEST_CASE("unread export bytes count for the user who started the export", "[archive]") {
  ContextFixture fixture;
  ExportSpools spools(fixture.context);
  const auto one = spools.make(kOne);
  const auto other = spools.make(kOther);
  for (int n = 0; n < 8; ++n) one->write(std::string(kPiece, 'x'));
  other->write(std::string(kPiece, 'y'));
  CHECK(spools.bytes_of(kOne) == 8 * kPiece);
  CHECK(spools.bytes_of(kOther) == kPiece);
  CHECK(spools.bytes() == 9 * kPiece);
  for (int n = 0; n < 4; ++n) REQUIRE(one->try_read(kPiece)->size() == kPiece);
  CHECK(spools.bytes_of(kOne) == 4 * kPiece);
}

TEST_CASE("exports leave as much room as they take", "[archive]") {
  DiskRoom room;
  room.space.free_bytes = 100 * kPiece;
  room.min_free_bytes = 40 * kPiece;
  CHECK(has_room_for_exports(room, 0));
  CHECK(has_room_for_exports(room, 60 * kPiece));
  CHECK_FALSE(has_room_for_exports(room, 60 * kPiece + 1));
  room.min_free_bytes = 101 * kPiece;
  CHECK_FALSE(has_room_for_exports(room, 0));
}

TEST_CASE("an export that is read too slowly ends", "[archive]") {
  const auto room = [] { return true; };
  const auto spool_with = [&](LeastRate least) {
    auto spool =
        std::make_unique<ByteSpool>(base::Fd(memfd_create("spool", MFD_CLOEXEC)), room, least);
    spool->write("a few bytes");
    return spool;
  };
  const auto usual = spool_with({});
  CHECK(usual->try_read(1) == "a");
  CHECK(usual->try_read(1) == " ");
  const auto strict = spool_with({.grace = std::chrono::nanoseconds(0), .bytes_per_s = 1e18});
  CHECK(strict->try_read(1) == "a");  // time before the first read does not count against it
  CHECK(code_thrown_by([&] { strict->try_read(1); }) == base::Code::deadline_exceeded);
}
