// Storage of layers, and the mounts of an active workspace. A layer is
// layers/<ly>/{tree,home,system}, each with upper/ and work/ of an overlay. Owners on disk are the
// same for every sandbox: inside id N is disk_first_id + N, work/ belongs to disk_first_id + 65536
// (whom the mounter works as: decision 0306). Invariant: at most one overlay superblock per
// upper directory at any time; the caller holds the workspace's lock while it mounts and has
// dropped every descriptor of the mount before. Nothing is ever mounted in the host's mount
// namespace: a thread with a private one does it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/ids.h"
#include "workspace/disk_quota.h"

namespace moorage::workspace {

// What lies under the writable layer, nearest first.
struct Chain {
  base::LayerId writable;
  QuotaLimit limit;                         // of the writable layer
  std::vector<base::LayerId> frozen;        // newest first
  std::string base_tree;                    // absolute path of the immutable checkout
  std::vector<std::string> deltas;          // on that, nearest first (base_tree.h)
  std::string image_home;                   // lowest directory of /home/user; may be empty
  std::shared_ptr<const void> base_in_use;  // until the mount is one that Active knows
};

// Whose room on a full disk an overlay may take (decision 0306).
enum class MountRoom {
  everybodys,
  roots,  // also what ext4 keeps for user 0: for the host alone, to remove files
};

// Detached mounts; they vanish with their last descriptor (and the last sandbox that has them).
struct ActiveMounts {
  base::Fd tree;
  base::Fd home;
  uint64_t tree_device = 0;  // st_dev, to find the same superblock again after a restart
  uint64_t home_device = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  virtual std::string name() const = 0;  // "overlay"
  // Directories of an empty layer. Idempotent. Not synced, but what is made after it in the layer
  // reaches the disk only after it.
  virtual void make_layer(base::LayerId layer) = 0;
  // A layer that was just made, and all that were made before it, outlive a power cut.
  virtual void sync_layer(base::LayerId layer) = 0;
  // One that is like another one at this moment, which somebody writes to; durable. Only of one
  // that clones_layer().
  virtual bool clones_layer(base::LayerId layer) = 0;
  virtual void clone_layer(base::LayerId from, base::LayerId to) = 0;
  virtual void remove_layer(base::LayerId layer) = 0;
  virtual DiskQuota& quota() = 0;
  virtual std::string layer_path(base::LayerId layer) const = 0;
  // Mounts with ids shown as first_host_id...; see the invariant above.
  // resource_exhausted: there is no room for its work directories.
  virtual ActiveMounts mount(const Chain& chain, uint32_t first_host_id,
                             MountRoom room = MountRoom::everybodys) = 0;
  // A read-only detached bind of a host directory whose owner root is shown as inside root.
  virtual base::Fd bind_read_only(const std::string& path, uint32_t first_host_id) = 0;
};

struct OverlayOptions {
  std::string store;
  uint32_t disk_first_id = 1'900'000'000;
  bool watch_only = false;  // no quota of the kernel, even where it has one
};
std::unique_ptr<Storage> make_overlay_storage(const OverlayOptions& options);

}  // namespace moorage::workspace
