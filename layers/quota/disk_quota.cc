#include "layers/quota/disk_quota.h"

#include <sys/stat.h>

#include <cerrno>

#include "base/background.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"

namespace moorage::layers {

void DiskQuota::make(base::LayerId, const std::string& path) {
  if (mkdir(path.c_str(), 0700) < 0 && errno != EEXIST) base::throw_errno("make " + path);
}

void DiskQuota::clone(const std::string& path, const std::string&) {
  throw Error(Code::internal, path + " cannot be cloned");
}

void DiskQuota::remove(base::LayerId, const std::string& path) {
  const base::Background background;
  base::remove_tree(path);
}

std::unique_ptr<DiskQuota> probe_disk_quota(const std::string& layers, bool watch_only) {
  std::unique_ptr<DiskQuota> quota;
  if (!watch_only) quota = probe_btrfs_quota(layers);
  if (!watch_only && !quota) quota = probe_project_quota(layers);
  if (!quota) quota = std::make_unique<DiskQuota>();
  base::log(base::LogLevel::debug, "store.disk_quota", {base::Field("kind", quota->name())});
  return quota;
}

}  // namespace moorage::layers
