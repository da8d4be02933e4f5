// What layers take on the disk, as last measured, and whose that is: a frozen layer that several
// workspaces stand on, or have snapshots on, counts for the oldest of them alone, and passes to the
// next when that one is purged. An archived one is asked last, as its own layers are not there.
// Frozen layers that share files (second names: merges, copies) are measured again when one of them
// comes or goes, each name with its share.
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
  bool measured = false;  // since it was frozen, and since files of it were shared or given up
  uint64_t bytes = 0;
  uint64_t files = 0;
};

class LayerDisk {
 public:
  explicit LayerDisk(Store& store) : store_(store) {}

  // Of the frozen ones, and of the writable one as it was last measured.
  std::vector<LayerDiskRow> owned_by(base::WorkspaceId workspace);
  std::vector<base::WorkspaceId> owners_of(const std::vector<LayerDiskRow>& layers);
  std::optional<LayerDiskRow> find(base::LayerId layer);  // empty: never measured
  void set_frozen(base::LayerId layer, uint64_t bytes, uint64_t files);
  void set_writable(base::LayerId layer, uint64_t bytes, uint64_t files);
  // Files of one are files of another.
  void share(const std::vector<base::LayerId>& layers);
  // These are removed: what shared files with them has these alone.
  void give_up(const std::vector<base::LayerId>& layers);
  uint64_t journal_bytes(base::WorkspaceId workspace);  // as last measured
  // The workspace's disk_bytes and disk_files: the layers that are its own, and its journals.
  void recount(base::WorkspaceId workspace, std::optional<uint64_t> journal_bytes = {});

 private:
  Store& store_;
};

}  // namespace moorage::state_db
