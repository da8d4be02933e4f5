#include "backends/cgroups/block_device.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <optional>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/mount.h"

namespace moorage::backends {
namespace {

std::string text_of(dev_t device) {
  return std::to_string(major(device)) + ":" + std::to_string(minor(device));
}

// The block device behind the mount with this device number.
std::optional<dev_t> source_of(dev_t device) {
  for (const auto& mount : base::parse_mounts(base::read_file("/proc/self/mountinfo"))) {
    struct stat info;
    if (mount.device == text_of(device) && stat(mount.source.c_str(), &info) == 0 &&
        S_ISBLK(info.st_mode)) {
      return info.st_rdev;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string disk_of(const std::string& path) {
  struct stat info;
  base::check(stat(path.c_str(), &info), "inspect " + path);
  dev_t device = info.st_dev;
  if (major(device) == 0) {
    const auto source = source_of(device);
    if (!source) {
      throw Error(Code::unsupported, "no disk found for " + path,
                  "remove sandbox.disk_rate_bytes from the configuration");
    }
    device = *source;
  }
  const std::string entry = "/sys/dev/block/" + text_of(device);
  if (!base::path_exists(entry + "/partition")) return text_of(device);
  // /sys/devices/.../vda/vda1: the parent directory belongs to the disk.
  std::string number = base::read_file(entry + "/../dev");
  while (!number.empty() && number.back() == '\n') number.pop_back();
  return number;
}

}  // namespace moorage::backends
