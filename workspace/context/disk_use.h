// Disk use of a workspace: its own layers (state_db/tables/layer_disk.h), frozen ones included, and
// its journals. A frozen layer is walked once, and again after the sharing of its files changed;
// callers walk the writable one. The sum is in the workspace's row. An incomplete walk is never
// recorded.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "layers/quota/disk_quota.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

// The disk limit in its policy.
layers::QuotaLimit limit_of(const state_db::WorkspaceRow& row);

class DiskUse {
 public:
  struct Beside {
    layers::QuotaUse use;
    std::vector<base::LayerId> unmeasured{};  // frozen ones with a stale size
  };
  explicit DiskUse(Context& context) : context_(context) {}

  // Everything except this layer, as last measured; the rest of the limit is left for it. No walk.
  Beside beside(base::WorkspaceId workspace, base::LayerId layer);
  // Walks a frozen layer. False: not finished in that time. not_found: it is gone.
  bool measure_frozen(base::LayerId layer, std::chrono::milliseconds time);
  // The kernel limit for `layer` as its writable one: the workspace's limit minus everything else.
  layers::QuotaLimit limit_of_writable(const state_db::WorkspaceRow& row, base::LayerId layer);
  // Records the result of a walk of the writable layer, and updates the sum in the row.
  void keep_writable(const state_db::WorkspaceRow& row, uint64_t bytes, uint64_t files);
  // Walks unmeasured frozen layers and the journals, and updates the sum in the row. If a walk
  // takes too long, the last known size stays.
  void settle(base::WorkspaceId workspace);

 private:
  Context& context_;
};

}  // namespace moorage::workspace
