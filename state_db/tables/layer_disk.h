// Disk use of layers as last measured, and the workspace charged for it: if several workspaces or
// their snapshots use a frozen layer, only the oldest pays; when that one is purged, the next one
// does. Archived workspaces pay last, as their own layers are not on disk. Frozen layers that share
// files (hard links from merges and copies) are measured again when one of them is added or
// removed; each gets its share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace moorage::state_db {

class Store;

struct LayerDiskRow {
  base::LayerId id{};
  bool frozen = false;
  bool measured = false;  // since it was frozen, and since its shared files changed
  uint64_t bytes = 0;
  uint64_t files = 0;
};

class LayerDisk {
 public:
  explicit LayerDisk(Store& store) : store_(store) {}

  // The frozen layers, and the writable one as last measured.
  std::vector<LayerDiskRow> owned_by(base::WorkspaceId workspace);
  std::vector<base::WorkspaceId> owners_of(const std::vector<LayerDiskRow>& layers);
  std::optional<LayerDiskRow> find(base::LayerId layer);  // empty: never measured
  void set_frozen(base::LayerId layer, uint64_t bytes, uint64_t files);
  void set_writable(base::LayerId layer, uint64_t bytes, uint64_t files);
  // These layers have files in common.
  void share(const std::vector<base::LayerId>& layers);
  // These layers are removed: the remaining sharers now own the files alone.
  void give_up(const std::vector<base::LayerId>& layers);
  uint64_t journal_bytes(base::WorkspaceId workspace);  // as last measured
  // Updates the workspace's disk_bytes and disk_files: its own layers, and its journals.
  void recount(base::WorkspaceId workspace, std::optional<uint64_t> journal_bytes = {});

 private:
  Store& store_;
};

}  // namespace moorage::state_db
