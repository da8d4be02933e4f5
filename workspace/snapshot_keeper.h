// What the policies of workspaces say about snapshots, carried out: one every so often while a
// sandbox works, and those that were taken by themselves go again (retention): the newest stay,
// then one an hour for a day, then one a day for a month. What has a name or was asked for stays.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "workspace/snapshots.h"

namespace moorage::workspace {

inline constexpr size_t kNewestKept = 10;

// Of these, oldest first, those that are to go. By the age of the store, which no clock sets back.
std::vector<base::SnapshotId> past_retention(const std::vector<state_db::SnapshotRow>& kept,
                                             int64_t now_age_ms);

class SnapshotKeeper {
 public:
  SnapshotKeeper(Context& context, Active& active, Snapshots& snapshots)
      : context_(context), active_(active), snapshots_(snapshots) {}

  void look();  // call it every few seconds, from one thread

 private:
  void look_at(const Running& running);
  void drop_past();

  Context& context_;
  Active& active_;
  Snapshots& snapshots_;
  std::map<base::SandboxId, int64_t> taken_boot_ms_;  // the last one, or when it was first seen
};

}  // namespace moorage::workspace
