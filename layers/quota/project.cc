// Project quotas of ext4 and XFS (mount option prjquota): a layer's directories carry a project
// number that new files inherit, and the kernel counts by that number. quotactl_fd(2) needs Linux
// 5.14; the commands of XFS work on ext4, too.
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "layers/quota/disk_quota.h"

namespace moorage::layers {
namespace {

constexpr uint64_t kBlock = 512;                // the unit of fs_disk_quota
constexpr uint32_t kFirstProject = 0x4d000000;  // administrators number theirs from 1

uint32_t project_of(base::LayerId layer) {
  return kFirstProject + static_cast<uint32_t>(layer.value & 0xffffff);
}

long quota_call(int fd, unsigned command, uint32_t id, void* data) {
  return syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), id, data);
}

class ProjectQuota : public DiskQuota {
 public:
  std::string name() const override { return "project quota"; }
  bool refuses_bytes() const override { return true; }
  bool refuses_files() const override { return true; }

  // While the directory is empty: everything created later inherits the number.
  void make(base::LayerId layer, const std::string& path) override {
    DiskQuota::make(layer, path);
    const Fd directory = base::open_directory(path);
    fsxattr attributes{};
    base::check(ioctl(directory.get(), FS_IOC_FSGETXATTR, &attributes), "inspect " + path);
    attributes.fsx_projid = project_of(layer);
    attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    base::check(ioctl(directory.get(), FS_IOC_FSSETXATTR, &attributes), "mark " + path);
  }

  void limit(base::LayerId layer, const std::string& path, const QuotaLimit& limit) override {
    const Fd directory = base::open_directory(path);
    fs_disk_quota quota{};
    quota.d_version = FS_DQUOT_VERSION;
    quota.d_flags = FS_PROJ_QUOTA;
    quota.d_fieldmask = FS_DQ_BHARD | FS_DQ_IHARD;
    quota.d_id = project_of(layer);
    quota.d_blk_hardlimit = (limit.bytes + kBlock - 1) / kBlock;
    quota.d_ino_hardlimit = limit.files;
    base::check(quota_call(directory.get(), Q_XSETQLIM, project_of(layer), &quota),
                "limit " + path);
  }

  std::optional<QuotaUse> use(base::LayerId layer, const std::string& path) override {
    const Fd directory = base::open_directory(path);
    fs_disk_quota quota{};
    if (quota_call(directory.get(), Q_XGETQUOTA, project_of(layer), &quota) < 0) {
      if (errno == ENOENT || errno == ESRCH) return std::nullopt;
      base::throw_errno("query the quota of " + path);
    }
    return QuotaUse{quota.d_bcount * kBlock, quota.d_icount};
  }

  void remove(base::LayerId layer, const std::string& path) override {
    if (base::path_exists(path)) ProjectQuota::limit(layer, path, {});
    DiskQuota::remove(layer, path);
  }
};

}  // namespace

std::unique_ptr<DiskQuota> probe_project_quota(const std::string& layers) {
  const Fd directory = base::open_directory(layers);
  fs_quota_stat state{};
  if (quota_call(directory.get(), Q_XGETQSTAT, 0, &state) < 0) return nullptr;
  if ((state.qs_flags & FS_QUOTA_PDQ_ENFD) == 0) return nullptr;
  return std::make_unique<ProjectQuota>();
}

}  // namespace moorage::layers
