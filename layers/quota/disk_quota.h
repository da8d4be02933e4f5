// Enforces a layer's limits on bytes and files. Probed once on the store's file system:
//   btrfs qgroup   the layer is a subvolume; the kernel limits bytes, files are watched
//   project quota  ext4 or XFS with prjquota: the kernel limits both
//   watched        elsewhere: measured while being written, see workspace/upkeep/quota_watch.h
// The kernel refuses with EDQUOT, at once and for that layer alone. Unlimited layers are made the
// same way, so that they can be limited later. Calls are idempotent and made under the workspace's
// lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"

namespace moorage::layers {

struct QuotaLimit {  // 0: no limit
  uint64_t bytes = 0;
  uint64_t files = 0;
  bool any() const { return bytes > 0 || files > 0; }
};

struct QuotaUse {
  uint64_t bytes = 0;
  std::optional<uint64_t> files{};  // unset: this quota does not count them
};

class DiskQuota {
 public:
  virtual ~DiskQuota() = default;
  virtual std::string name() const { return "watched"; }
  virtual bool refuses_bytes() const { return false; }
  virtual bool refuses_files() const { return false; }
  // Creates the empty directory of a new layer, mode 0700.
  virtual void make(base::LayerId layer, const std::string& path);
  virtual void limit(base::LayerId, const std::string& /*path*/, const QuotaLimit&) {}
  // The kernel's count, without a walk; nullopt: the kernel does not count.
  virtual std::optional<QuotaUse> use(base::LayerId, const std::string& /*path*/) { return {}; }
  virtual void remove(base::LayerId layer, const std::string& path);
  // Whether it can clone a layer in one step: completely, of one moment, and durably.
  virtual bool clones(const std::string&) const { return false; }
  virtual void clone(const std::string& path, const std::string& to);
};

// The best quota that the file system of `layers` supports; `watch_only` skips the probing.
std::unique_ptr<DiskQuota> probe_disk_quota(const std::string& layers, bool watch_only);

// Null if the kernel or the file system does not support it.
std::unique_ptr<DiskQuota> probe_btrfs_quota(const std::string& layers);
std::unique_ptr<DiskQuota> probe_project_quota(const std::string& layers);

}  // namespace moorage::layers
