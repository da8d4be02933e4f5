#include "workspace/upkeep/retention.h"

#include <set>

#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

constexpr int64_t kHour_ms = 3'600'000;
constexpr int64_t kDay_ms = 24 * kHour_ms;
constexpr int64_t kDaysKept = 30;

}  // namespace

std::vector<base::SnapshotId> past_retention(const std::vector<state_db::SnapshotRow>& kept,
                                             int64_t now_age_ms) {
  std::vector<base::SnapshotId> past;
  size_t newer = 0;
  std::set<int64_t> hours;
  std::set<int64_t> days;
  for (auto row = kept.rbegin(); row != kept.rend(); ++row) {
    if (!row->name.empty() || !state_db::is_automatic(row->cause)) continue;
    if (newer++ < kNewestKept) continue;
    const int64_t age_ms = now_age_ms - row->created_age_ms;
    const bool of_hour = age_ms < kDay_ms && hours.insert(row->created_age_ms / kHour_ms).second;
    const bool of_day = age_ms >= kDay_ms && age_ms < kDaysKept * kDay_ms &&
                        days.insert(row->created_age_ms / kDay_ms).second;
    if (!of_hour && !of_day) past.push_back(row->id);
  }
  return past;
}

void SnapshotKeeper::look() {
  std::set<base::SandboxId> there;
  for (const auto& running : context_.live.all()) {
    there.insert(running.sandbox);
    try_step("snapshot.interval", running.workspace.str(), [&] { look_at(running); });
  }
  std::erase_if(taken_boot_ms_, [&](const auto& known) { return !there.contains(known.first); });
  try_step("snapshot.retention", "", [&] { drop_past(); });
}

void SnapshotKeeper::look_at(const LiveSandbox& running) {
  const auto row = state_db::WorkspaceTable(context_.store).get(running.workspace);
  if (row.policy.snapshot_every_s == 0) return;
  const int64_t now_ms = context_.store.clock().boot_ms();
  const auto [taken, is_new] = taken_boot_ms_.try_emplace(running.sandbox, now_ms);
  const int64_t since_ms = now_ms - taken->second;
  if (is_new || since_ms < row.policy.snapshot_every_s * 1000) return;
  const auto rest = context_.live.rest(running.workspace);
  if (rest && rest->busy_with.empty() && rest->idle_ms >= since_ms) return;  // nothing ran
  try {
    taker_.take_interval(running.workspace);
  } catch (const base::Error& error) {
    if (error.code() == base::Code::conflict) return;  // a verb is running: try again later
    throw;
  }
  taken->second = now_ms;
}

void SnapshotKeeper::drop_past() {
  state_db::SnapshotTable table(context_.store);
  bool dropped = false;
  for (const auto id : table.with_many(kNewestKept)) {
    const auto guard = lock_if_free(context_, id.str());
    if (!guard) continue;
    const auto past = past_retention(table.kept(id), state_db::StoreAge(context_.store).now_ms());
    if (past.empty()) continue;
    context_.store.transaction([&] {
      for (const auto snapshot : past) table.drop(snapshot, "retention");
    });
    dropped = true;
  }
  if (dropped) collect_layers(context_);
}

}  // namespace moorage::workspace
