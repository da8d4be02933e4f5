// Which automatic snapshots are dropped.
#include "workspace/upkeep/retention.h"

#include <catch2/catch.hpp>
#include <set>

using namespace moorage;
using state_db::SnapshotCause;
using state_db::SnapshotRow;

namespace {

constexpr int64_t kMinute_ms = 60'000;
constexpr int64_t kHour_ms = 60 * kMinute_ms;
constexpr int64_t kDay_ms = 24 * kHour_ms;

SnapshotRow row(int64_t id, int64_t age_ms, SnapshotCause cause = SnapshotCause::interval,
                const std::string& name = "") {
  SnapshotRow made;
  made.id = base::SnapshotId{id};
  made.created_age_ms = age_ms;
  made.cause = cause;
  made.name = name;
  return made;
}

}  // namespace

TEST_CASE("the newest stay, then one an hour, then one a day, and requested ones") {
  std::vector<SnapshotRow> kept;
  int64_t id = 0;
  const int64_t now_ms = 40 * kDay_ms;
  for (int64_t at = 0; at < now_ms; at += 10 * kMinute_ms) kept.push_back(row(++id, at));
  kept.insert(kept.begin() + 5, row(++id, 3, SnapshotCause::manual));
  kept.insert(kept.begin() + 5, row(++id, 3, SnapshotCause::on_stop, "named"));
  const auto past = workspace::past_retention(kept, now_ms);
  const std::set<base::SnapshotId> gone(past.begin(), past.end());
  CHECK(gone.size() == past.size());
  CHECK_FALSE(gone.contains(base::SnapshotId{id}));
  CHECK_FALSE(gone.contains(base::SnapshotId{id - 1}));
  size_t young = 0;
  size_t old = 0;
  size_t ancient = 0;
  for (const auto& snapshot : kept) {
    if (gone.contains(snapshot.id) || !snapshot.name.empty() ||
        snapshot.cause == SnapshotCause::manual)
      continue;
    const int64_t age_ms = now_ms - snapshot.created_age_ms;
    (age_ms < kDay_ms ? young : age_ms < 30 * kDay_ms ? old : ancient) += 1;
  }
  CHECK(young == 10 + 23);  // the newest ten cover more than the last hour
  CHECK(old == 30);         // days 10 to 39 of the store; on day 39 the one exactly a day old
  CHECK(ancient == 0);

  // A second run keeps the same ones.
  std::vector<SnapshotRow> left;
  for (const auto& snapshot : kept) {
    if (!gone.contains(snapshot.id)) left.push_back(snapshot);
  }
  CHECK(workspace::past_retention(left, now_ms).empty());
  CHECK(workspace::past_retention({}, now_ms).empty());
}
