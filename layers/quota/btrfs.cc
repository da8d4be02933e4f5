// btrfs: a layer is a subvolume, and the kernel makes its quota group 0/ID along with it. Ioctls
// from linux/btrfs.h; a group's usage is in /sys/fs/btrfs/UUID/qgroups (Linux 5.9).
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "layers/quota/disk_quota.h"

namespace moorage::layers {
namespace {

// Root inode of every subvolume (BTRFS_FIRST_FREE_OBJECTID).
constexpr uint64_t kSubvolumeRoot = 256;
constexpr uint64_t kNoLimit = UINT64_MAX;  // removes a limit

std::string groups_directory(int file_system) {
  btrfs_ioctl_fs_info_args info{};
  base::check(ioctl(file_system, BTRFS_IOC_FS_INFO, &info), "query the btrfs file system");
  std::string uuid = base::to_hex({reinterpret_cast<const char*>(info.fsid), sizeof info.fsid});
  for (const size_t at : {8, 13, 18, 23}) uuid.insert(at, "-");
  return "/sys/fs/btrfs/" + uuid + "/qgroups";
}

std::pair<std::string, std::string> split(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

template <typename Arguments>
void put_name(Arguments& arguments, const std::string& name) {
  if (name.size() >= sizeof arguments.name)
    throw Error(Code::internal, "the name of a subvolume is too long: " + name);
  std::memcpy(arguments.name, name.c_str(), name.size() + 1);
}

bool is_subvolume(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_ino == kSubvolumeRoot;
}

uint64_t subvolume_id(int directory) {
  btrfs_ioctl_ino_lookup_args lookup{};
  lookup.objectid = kSubvolumeRoot;
  base::check(ioctl(directory, BTRFS_IOC_INO_LOOKUP, &lookup), "query the subvolume id");
  return lookup.treeid;
}

class BtrfsQuota : public DiskQuota {
 public:
  explicit BtrfsQuota(std::string groups) : groups_(std::move(groups)) {}

  std::string name() const override { return "btrfs qgroup"; }
  bool refuses_bytes() const override { return true; }

  void make(base::LayerId, const std::string& path) override {
    if (base::path_exists(path)) return;
    const auto [parent, name] = split(path);
    btrfs_ioctl_vol_args arguments{};
    put_name(arguments, name);
    const Fd directory = base::open_directory(parent);
    if (ioctl(directory.get(), BTRFS_IOC_SUBVOL_CREATE, &arguments) < 0 && errno != EEXIST)
      base::throw_errno("create the subvolume " + path);
    base::check(chmod(path.c_str(), 0700), "set the mode of " + path);
  }

  // A plain directory, made by an earlier release, has no group of its own: it is watched.
  void limit(base::LayerId, const std::string& path, const QuotaLimit& limit) override {
    if (!is_subvolume(path)) return;
    const Fd directory = base::open_directory(path);
    btrfs_ioctl_qgroup_limit_args arguments{};  // qgroupid 0: the group of this subvolume
    arguments.lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
    arguments.lim.max_rfer = limit.bytes == 0 ? kNoLimit : limit.bytes;
    base::check(ioctl(directory.get(), BTRFS_IOC_QGROUP_LIMIT, &arguments), "limit " + path);
  }

  std::optional<QuotaUse> use(base::LayerId, const std::string& path) override {
    if (!is_subvolume(path)) return std::nullopt;
    const Fd directory = base::open_directory(path);
    const auto text = base::read_file_if_exists(
        groups_ + "/0_" + std::to_string(subvolume_id(directory.get())) + "/referenced");
    if (!text) return std::nullopt;
    return QuotaUse{std::strtoull(text->c_str(), nullptr, 10)};
  }

  bool clones(const std::string& path) const override { return is_subvolume(path); }

  // The ioctl returns after its transaction has committed.
  void clone(const std::string& path, const std::string& to) override {
    const auto [parent, name] = split(to);
    const Fd source = base::open_directory(path);
    const Fd directory = base::open_directory(parent);
    btrfs_ioctl_vol_args_v2 arguments{};
    arguments.fd = source.get();
    put_name(arguments, name);
    base::check(ioctl(directory.get(), BTRFS_IOC_SNAP_CREATE_V2, &arguments),
                "clone the subvolume " + path);
  }

  void remove(base::LayerId, const std::string& path) override {
    if (!is_subvolume(path)) return base::remove_tree(path);
    const auto [parent, name] = split(path);
    const Fd directory = base::open_directory(parent);
    btrfs_ioctl_qgroup_create_args group{};
    group.qgroupid = subvolume_id(base::open_directory(path).get());
    btrfs_ioctl_vol_args arguments{};
    put_name(arguments, name);
    base::check(ioctl(directory.get(), BTRFS_IOC_SNAP_DESTROY, &arguments),
                "remove the subvolume " + path);
    // Newer kernels remove the group themselves; it may also be in use for a moment longer.
    if (ioctl(directory.get(), BTRFS_IOC_QGROUP_CREATE, &group) < 0 && errno != ENOENT) {
      base::log(base::LogLevel::debug, "store.group_left",
                {{"path", path}, {"error", std::strerror(errno)}});
    }
  }

 private:
  const std::string groups_;
};

}  // namespace

std::unique_ptr<DiskQuota> probe_btrfs_quota(const std::string& layers) {
  struct statfs status {};
  if (statfs(layers.c_str(), &status) < 0 || status.f_type != BTRFS_SUPER_MAGIC) return nullptr;
  const Fd directory = base::open_directory(layers);
  const std::string groups = groups_directory(directory.get());
  btrfs_ioctl_quota_ctl_args enable{};
  enable.cmd = BTRFS_QUOTA_CTL_ENABLE;
  const bool known = base::path_exists(groups);
  if (!known && ioctl(directory.get(), BTRFS_IOC_QUOTA_CTL, &enable) < 0) {
    base::log(base::LogLevel::warning, "store.no_btrfs_quota", {{"error", std::strerror(errno)}});
    return nullptr;
  }
  if (!base::path_exists(groups)) return nullptr;  // kernels before 5.9 do not show usage
  return std::make_unique<BtrfsQuota>(groups);
}

}  // namespace moorage::layers
