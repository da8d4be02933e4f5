#include "base/ids.h"

#include <catch2/catch.hpp>
#include <unordered_set>

#include "base/clock.h"
#include "base/os/files.h"
#include "base/os/process.h"

using namespace moorage;
using base::WorkspaceId;

TEST_CASE("an id is parsed only from its one spelling") {
  CHECK(WorkspaceId{12}.str() == "ws_12");
  CHECK(WorkspaceId::parse("ws_12") == WorkspaceId{12});
  CHECK(WorkspaceId::parse("ws_9223372036854775807") == WorkspaceId{INT64_MAX});
  for (const char* text :
       {"", "ws", "ws_", "ws_0", "ws_01", "ws_-1", "ws_+1", "ws_ 1", "ws_1 ", "ws_1x", "ex_1",
        "WS_1", "ws1", "12", "ws_9223372036854775808", "ws_1\n"}) {
    CHECK_FALSE(WorkspaceId::parse(text));
  }
  CHECK_FALSE(WorkspaceId::parse(std::string_view("ws_1\0", 5)));
}

TEST_CASE("ids compare, hash, and can be empty") {
  std::unordered_set<WorkspaceId> set{WorkspaceId{1}, WorkspaceId{2}, WorkspaceId{1}};
  CHECK(set.size() == 2);
  CHECK(WorkspaceId{1} < WorkspaceId{2});
  CHECK_FALSE(WorkspaceId{});
}

TEST_CASE("times are written in UTC with milliseconds") {
  CHECK(base::format_utc(0) == "1970-01-01T00:00:00.000Z");
  CHECK(base::format_utc(1795252324512) == "2026-11-21T09:12:04.512Z");
  CHECK(base::format_utc(951826154007) == "2000-02-29T12:09:14.007Z");
  CHECK(base::format_utc(-1) == "1969-12-31T23:59:59.999Z");
}

TEST_CASE("the clocks run and the boot has an id") {
  const auto& clock = base::system_clock();
  CHECK(clock.wall_ms() > 1'600'000'000'000);
  const int64_t before = clock.boot_ms();
  CHECK(clock.boot_ms() >= before);
  CHECK(base::boot_id().size() == 36);
}
