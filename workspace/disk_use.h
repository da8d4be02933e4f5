// What a workspace takes of the disk: the layers that are its own (state_db/layer_disk.h), frozen
// ones too, and its journals. A frozen layer is walked once, and again after files of it came to be
// shared or no longer are; the writable one by whoever asks. All of it is in the workspace's row.
// What a walk could not count to its end is written nowhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "state_db/workspaces.h"
#include "workspace/context.h"
#include "workspace/disk_quota.h"

namespace moorage::workspace {

class DiskUse {
 public:
  struct Beside {
    QuotaUse use;
    std::vector<base::LayerId> unmeasured{};  // frozen ones that count as last known
  };
  explicit DiskUse(Context& context) : context_(context) {}

  // All but this layer, as last measured: what of its limit is left for it. Walks nothing.
  Beside beside(base::WorkspaceId workspace, base::LayerId layer);
  // Walks a frozen layer. False: it has too much to be counted in that time. not_found: it is gone.
  bool measure_frozen(base::LayerId layer, std::chrono::milliseconds time);
  // What the kernel is to hold its writable layer to: what the rest leaves of the limit.
  QuotaLimit limit_of_writable(const state_db::WorkspaceRow& row);
  // What a walk of the writable layer came to; the row has the sum then.
  void keep_writable(const state_db::WorkspaceRow& row, uint64_t bytes, uint64_t files);
  // Walks the frozen layers that were not measured, and the journals; the row has the sum then.
  // What takes too long stays as it was known.
  void settle(base::WorkspaceId workspace);

 private:
  Context& context_;
};

}  // namespace moorage::workspace
