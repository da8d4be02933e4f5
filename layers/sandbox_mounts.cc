#include "layers/sandbox_mounts.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/os/mount.h"
#include "base/os/mount_namespace.h"
#include "layers/file_watches.h"

namespace moorage::layers {
namespace {

MOORAGE_CRASH_POINT(unmounted, "restack.unmounted");
MOORAGE_CRASH_POINT(half, "restack.half");

std::pair<Fd, uint64_t> copy_of(const char* place) {
  Fd copy = base::clone_mount(place);
  struct stat status {};
  base::check(fstat(copy.get(), &status), std::string("check ") + place);
  return {std::move(copy), status.st_dev};
}

ActiveMounts copies() {
  ActiveMounts mounts;
  std::tie(mounts.tree, mounts.tree_device) = copy_of(kTreePlace);
  std::tie(mounts.home, mounts.home_device) = copy_of(kHomePlace);
  return mounts;
}

// False: busy. Never unmount lazily: an open file would still write to the frozen layer.
bool unmount(const char* place) {
  if (umount2(place, UMOUNT_NOFOLLOW) == 0) return true;
  if (errno == EBUSY) return false;
  base::throw_errno(std::string("unmount ") + place);
}

}  // namespace

ActiveMounts copy_sandbox_mounts(const base::ProcessIdentity& init) {
  ActiveMounts mounts;
  base::in_mount_namespace(init, [&] { mounts = copies(); });
  return mounts;
}

bool hold_mounts(const std::vector<pid_t>& members, const ActiveMounts& mounts) {
  return std::any_of(members.begin(), members.end(), [&](pid_t pid) {
    struct stat status {};
    const std::string path = "/proc/" + std::to_string(pid) + "/cwd";
    if (stat(path.c_str(), &status) < 0) return false;  // the process ended
    if (status.st_dev == mounts.tree_device || status.st_dev == mounts.home_device) return true;
    return watches_any(pid, {mounts.tree_device, mounts.home_device});
  });
}

bool exchange_sandbox_mounts(const base::ProcessIdentity& init, ActiveMounts& next) {
  bool exchanged = false;
  base::in_mount_namespace(init, [&] {
    const ActiveMounts before = copies();
    if (!unmount(kTreePlace)) return;
    const auto put_back = [&](const char* place, const Fd& mount) {
      base::attach_mount(mount.get(), place);
    };
    try {
      if (!unmount(kHomePlace)) return put_back(kTreePlace, before.tree);
    } catch (...) {
      put_back(kTreePlace, before.tree);
      throw;
    }
    unmounted.pass();
    base::attach_mount(next.tree.get(), kTreePlace);
    half.pass();
    base::attach_mount(next.home.get(), kHomePlace);
    next = copies();
    exchanged = true;
  });
  return exchanged;
}

}  // namespace moorage::layers
