#include "layers/sandbox_mounts.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <utility>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/os/mount.h"
#include "base/os/namespaces.h"
#include "base/parts.h"

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

constexpr size_t kPieceBytes = 64 << 10;
// Room for 40,000 marks on other file systems: a sandbox stays frozen while this is read.
constexpr size_t kMostBytes = 4 << 20;

// The kernel's encoding of a device number in fdinfo: 12 bits major, 20 bits minor.
dev_t device_of(uint32_t number) { return makedev(number >> 20, number & 0xfffff); }

// "inotify wd:1 ino:2a sdev:2f mask:..." and "fanotify ino:2a sdev:2f ..."; a mark on a whole mount
// has no sdev.
bool line_marks_any(std::string_view line, const std::vector<dev_t>& devices) {
  constexpr std::string_view kDevice = " sdev:";
  if (line.starts_with("fanotify mnt_id:")) return true;
  if (!line.starts_with("inotify ") && !line.starts_with("fanotify ")) return false;
  const size_t at = line.find(kDevice);
  if (at == std::string_view::npos) return false;
  uint32_t number = 0;
  const char* begin = line.data() + at + kDevice.size();
  std::from_chars(begin, line.data() + line.size(), number, 16);
  return std::find(devices.begin(), devices.end(), device_of(number)) != devices.end();
}

bool file_marks_any(int fdinfo, const std::vector<dev_t>& devices) {
  std::string text;
  std::string piece(kPieceBytes, '\0');
  for (size_t total = 0; total < kMostBytes;) {
    const ssize_t size = read(fdinfo, piece.data(), piece.size());
    if (size <= 0) return marks_any(text, devices);
    total += static_cast<size_t>(size);
    text.append(piece, 0, static_cast<size_t>(size));
    const size_t whole = text.rfind('\n') + 1;
    if (marks_any(std::string_view(text).substr(0, whole), devices)) return true;
    text.erase(0, whole);
  }
  return true;
}

}  // namespace

ActiveMounts copy_sandbox_mounts(const base::ProcessIdentity& init) {
  ActiveMounts mounts;
  base::in_mount_namespace(init, [&] { mounts = copies(); });
  return mounts;
}

bool marks_any(std::string_view fdinfo, const std::vector<dev_t>& devices) {
  while (!fdinfo.empty()) {
    if (line_marks_any(base::take_until(fdinfo, '\n'), devices)) return true;
  }
  return false;
}

bool watches_any(pid_t process, const std::vector<dev_t>& devices) {
  const std::string proc = "/proc/" + std::to_string(process);
  const std::unique_ptr<DIR, int (*)(DIR*)> fds(opendir((proc + "/fd").c_str()), closedir);
  if (!fds) return false;
  while (const dirent* entry = readdir(fds.get())) {
    char target[64];
    const ssize_t size = readlinkat(dirfd(fds.get()), entry->d_name, target, sizeof target);
    if (size <= 0) continue;
    // "anon_inode:inotify", "anon_inode:[fanotify]".
    const std::string_view what(target, static_cast<size_t>(size));
    if (!what.starts_with("anon_inode:") || what.find("notify") == std::string_view::npos) continue;
    const Fd info(open((proc + "/fdinfo/" + entry->d_name).c_str(), O_RDONLY | O_CLOEXEC));
    if (info && file_marks_any(info.get(), devices)) return true;
  }
  return false;
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
