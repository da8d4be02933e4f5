// Uploads and commands of a workspace at its disk limit, where the kernel does not enforce it.
#include "workspace/upkeep/quota_watch.h"

#include <catch2/catch.hpp>

#include "workspace/access/placement_fixture.h"

namespace moorage::workspace {
namespace {

constexpr uint64_t kMiB = 1 << 20;

struct QuotaFixture : PlacementFixture {
  state_db::WorkspaceRow make_limited(const std::string& name, uint64_t bytes,
                                      uint64_t most_files) {
    const auto row = make_workspace(name, "lxc", {1ULL << 30, 1, 100, bytes, most_files});
    storage->make_layer(row.layer);
    return row;
  }
  std::string refused(const state_db::WorkspaceRow& row, uint64_t bytes) {
    return refusal_of([&] { quotas.require_room(row, bytes); }, base::Code::resource_exhausted);
  }
};

}  // namespace

TEST_CASE("an upload over the disk limit is refused, and one that fits is reserved") {
  QuotaFixture test;
  const auto row = test.make_limited("small", 10 * kMiB, 0);
  CHECK(test.refused(row, 6 * kMiB).empty());
  CHECK_THAT(test.refused(row, 6 * kMiB), Catch::Contains("small has reached its disk limit"));
  CHECK(test.refused(row, 3 * kMiB).empty());
  // Another workspace has a limit of its own.
  CHECK(test.refused(test.make_limited("other", 10 * kMiB, 0), 6 * kMiB).empty());
}

TEST_CASE("an upload of one file too many is refused") {
  QuotaFixture test;
  const auto row = test.make_limited("few", 0, 3);
  for (int file = 0; file < 3; ++file) CHECK(test.refused(row, 0).empty());
  CHECK_FALSE(test.refused(row, 0).empty());
}

TEST_CASE("a workspace without a limit takes any upload") {
  QuotaFixture test;
  CHECK(test.refused(test.make_limited("free", 0, 0), 1ULL << 50).empty());
}

TEST_CASE("far over its disk limit a workspace runs no command until it is measured below") {
  QuotaFixture test;
  const auto row = test.make_limited("over", kMiB, 0);
  state_db::WorkspaceTable table(test.store);
  const auto refused = [&] {
    return refusal_of([&] { test.quotas.require_within(row); }, base::Code::resource_exhausted);
  };
  CHECK(refused().empty());
  table.set_facts(row.id, {.disk_bytes = 5 * kMiB});  // commands may still remove files
  CHECK(refused().empty());
  table.set_facts(row.id, {.disk_bytes = 20 * kMiB});
  CHECK_THAT(refused(), Catch::Contains("over is far over its disk limit (20M of 1M)") &&
                            Catch::Contains("--free-space"));
  table.set_facts(row.id, {.disk_bytes = kMiB});
  CHECK(refused().empty());
}

}  // namespace moorage::workspace
