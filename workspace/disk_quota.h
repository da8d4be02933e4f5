// Who keeps a layer below its limit of bytes and files. Probed once on the store's file system:
//   btrfs qgroup   the layer is a subvolume; the kernel refuses bytes, files are watched
//   project quota  ext4 or XFS with prjquota: the kernel refuses both
//   watched        elsewhere: measured while it is written to, see quota_watch.h
// A kernel's refusal is EDQUOT, at once and for that layer alone. What nobody limits is made the
// same way, so that it can be limited later. Calls are idempotent and made under the workspace's
// lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"

namespace moorage::workspace {

struct QuotaLimit {  // 0: none
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
  virtual std::string name() const = 0;
  virtual bool refuses_bytes() const { return false; }
  virtual bool refuses_files() const { return false; }
  // Makes the directory of a layer that has none yet, empty, mode 0700.
  virtual void make(base::LayerId layer, const std::string& path);
  virtual void limit(base::LayerId layer, const std::string& path, const QuotaLimit& limit);
  // As the kernel counts it, without a walk; nothing: it does not.
  virtual std::optional<QuotaUse> use(base::LayerId layer, const std::string& path);
  virtual void remove(base::LayerId layer, const std::string& path);
  // Whether a layer that it made is cloned in one step, whole, of one moment and durable.
  virtual bool clones(const std::string&) const { return false; }
  virtual void clone(const std::string& path, const std::string& to);
};

// The best that works on the file system of `layers`; `watch_only`: look no further.
std::unique_ptr<DiskQuota> probe_disk_quota(const std::string& layers, bool watch_only);

// Each null where its kernel, or its file system, does not have it.
std::unique_ptr<DiskQuota> probe_btrfs_quota(const std::string& layers);
std::unique_ptr<DiskQuota> probe_project_quota(const std::string& layers);

}  // namespace moorage::workspace
