// Storage of layers, and the mounts of an active workspace. A layer is
// layers/<ly>/{tree,home,system}, each with upper/ and work/ of an overlay. Owners on disk are the
// same for every sandbox: inside id N is disk_first_id + N, work/ belongs to disk_first_id + 65536
// (the user that the mounter acts as: decision 0306). Invariant: at most one overlay superblock
// for an upper directory at any time; the caller holds the workspace's lock while it mounts and has
// dropped every descriptor of the previous mount. A thread with a private mount namespace mounts;
// the host's stays unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/os/fd.h"
#include "layers/quota/disk_quota.h"

namespace moorage::layers {

// The layers below the writable layer, nearest first.
struct Chain {
  base::LayerId writable;
  QuotaLimit limit;                         // of the writable layer
  std::vector<base::LayerId> frozen;        // newest first
  std::string base_tree;                    // absolute path of the immutable checkout
  std::vector<std::string> deltas;          // over the base tree, nearest first (base_tree.h)
  std::string image_home;                   // lowest directory of /home/user; may be empty
  std::shared_ptr<const void> base_in_use;  // held until Active knows the mount
};

// The reserve that an overlay may use on a full disk (decision 0306).
enum class MountRoom {
  everybodys,
  roots,  // also the blocks that ext4 reserves for user 0: only for the host, to remove files
};

// Detached mounts; they vanish with their last descriptor, and the last sandbox that uses them.
struct ActiveMounts {
  Fd tree;
  Fd home;
  uint64_t tree_device = 0;  // st_dev, to find the same superblock again after a restart
  uint64_t home_device = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  virtual std::string name() const = 0;  // "overlay"
  // Makes the directories of an empty layer. Idempotent. Not synced, but later changes in the layer
  // reach the disk only after it.
  virtual void make_layer(base::LayerId layer) = 0;
  // Makes the newest layer, and all made before it, survive a power cut.
  virtual void sync_layer(base::LayerId layer) = 0;
  // Clones a layer in its current state while somebody writes to it; durable. Only if
  // clones_layer() is true for it.
  virtual bool clones_layer(base::LayerId layer) = 0;
  virtual void clone_layer(base::LayerId from, base::LayerId to) = 0;
  virtual void remove_layer(base::LayerId layer) = 0;
  virtual DiskQuota& quota() = 0;
  virtual std::string layer_path(base::LayerId layer) const = 0;
  // Mounts with ids shown as first_host_id...; see the invariant above. Throws resource_exhausted:
  // no space for the work directories.
  virtual ActiveMounts mount(const Chain& chain, uint32_t first_host_id,
                             MountRoom room = MountRoom::everybodys) = 0;
  // A read-only detached bind mount of a directory with a workspace's files (a base tree, the upper
  // directory of a layer): owners are as in `mount`.
  virtual Fd bind_files(const std::string& path, uint32_t first_host_id) = 0;
  // A read-only detached bind mount of a host directory; its owner root appears as inside root.
  virtual Fd bind_read_only(const std::string& path, uint32_t first_host_id) = 0;
};

struct OverlayOptions {
  std::string store;
  uint32_t disk_first_id = 1'900'000'000;
  bool watch_only = false;  // do not use kernel quotas, even if available
};
std::unique_ptr<Storage> make_overlay_storage(const OverlayOptions& options);

}  // namespace moorage::layers
