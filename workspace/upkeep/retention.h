// Applies the snapshot policies of workspaces: takes one at intervals while a sandbox works, and
// drops automatic ones (retention): it keeps the newest, then one an hour for a day, then one a day
// for a month. Snapshots with a name or on request are always kept.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "workspace/snapshot/taker.h"

namespace moorage::workspace {

inline constexpr size_t kNewestKept = 10;

// Returns those of `kept` (oldest first) to drop, by the store's age, which no clock sets back.
std::vector<base::SnapshotId> past_retention(const std::vector<state_db::SnapshotRow>& kept,
                                             int64_t now_age_ms);

class SnapshotKeeper {
 public:
  SnapshotKeeper(Context& context, SnapshotTaker& taker) : context_(context), taker_(taker) {}

  void look();  // call it every few seconds, from one thread

 private:
  void look_at(const LiveSandbox& running);
  void drop_past();

  Context& context_;
  SnapshotTaker& taker_;
  std::map<base::SandboxId, int64_t> taken_boot_ms_;  // last snapshot, or first sight
};

}  // namespace moorage::workspace
