#include "base/os/mount.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/error.h"
#include "base/os/files.h"
#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr const char* kMountMax = "fs.mount-max";

// fsconfig(2) accepts at most 255 bytes per string, on every kernel.
constexpr size_t kMaxOptionBytes = 255;

uint64_t attribute_bits(const MountAttributes& attributes) {
  uint64_t bits = 0;
  if (attributes.read_only) bits |= MOUNT_ATTR_RDONLY;
  if (attributes.nosuid) bits |= MOUNT_ATTR_NOSUID;
  if (attributes.nodev) bits |= MOUNT_ATTR_NODEV;
  if (attributes.noexec) bits |= MOUNT_ATTR_NOEXEC;
  return bits;
}

void set_propagation(const std::string& path, uint64_t propagation) {
  mount_attr wanted{};
  wanted.propagation = propagation;
  check(mount_setattr(AT_FDCWD, path.c_str(), AT_RECURSIVE, &wanted, sizeof wanted),
        "set the mount propagation of " + path);
}

// Adds the file system's reason, in the kernel's words (fsopen(2): reads of the context).
[[noreturn]] void throw_with_kernel_log(int context, std::string what, int error_number) {
  constexpr int kMaxLines = 8;  // the kernel keeps this many
  char line[512];
  std::string log;
  for (int i = 0; i < kMaxLines; ++i) {
    ssize_t size = read(context, line, sizeof line);
    if (size <= 0) break;
    std::string_view text(line, static_cast<size_t>(size));
    while (text.ends_with('\n')) text.remove_suffix(1);
    log += (log.empty() ? " (" : "; ") + std::string(text);
  }
  // Some file systems still report only to the system log (overlay on 6.18: printk).
  what += log.empty() ? " (dmesg may say why)" : log + ")";
  throw_errno(what, error_number);
}

void set_options(int context, const std::string& what,
                 const std::vector<std::pair<std::string, std::string>>& options) {
  for (const auto& [key, value] : options) {
    if (value.size() > kMaxOptionBytes) {
      throw Error(Code::invalid_argument, "cannot " + what + ": " + key + " exceeds 255 bytes");
    }
    unsigned command = value.empty() ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
    const char* text = value.empty() ? nullptr : value.c_str();
    if (fsconfig(context, command, key.c_str(), text, 0) < 0)
      throw_with_kernel_log(context, what + ": option " + key, errno);
  }
}

}  // namespace

Fd clone_mount(const std::string& path) {
  return Fd(check_allowance(open_tree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC),
                            "clone the mount at " + path, kMountMax));
}

void set_mount_attributes(int mount_fd, const MountAttributes& attributes) {
  mount_attr wanted{};
  wanted.attr_set = attribute_bits(attributes);
  check(mount_setattr(mount_fd, "", AT_EMPTY_PATH, &wanted, sizeof wanted), "change a mount");
}

void set_mount_slave(int mount_fd) {
  mount_attr wanted{};
  wanted.propagation = MS_SLAVE;
  check(mount_setattr(mount_fd, "", AT_EMPTY_PATH, &wanted, sizeof wanted), "change a mount");
}

void set_mount_idmap(int mount_fd, int user_namespace_fd) {
  mount_attr wanted{};
  wanted.attr_set = MOUNT_ATTR_IDMAP;
  wanted.userns_fd = static_cast<uint64_t>(user_namespace_fd);
  if (mount_setattr(mount_fd, "", AT_EMPTY_PATH, &wanted, sizeof wanted) == 0) return;
  if (errno == EINVAL) {
    throw Error(Code::unsupported, "this file system does not support idmapped mounts",
                "put the store on ext4, XFS or btrfs; or in an image file: store.image");
  }
  throw_errno("map the ids of a mount");
}

void set_propagation_private(const std::string& path) { set_propagation(path, MS_PRIVATE); }
void set_propagation_slave(const std::string& path) { set_propagation(path, MS_SLAVE); }

void attach_mount(int mount_fd, const std::string& target) {
  check_allowance(move_mount(mount_fd, "", AT_FDCWD, target.c_str(), MOVE_MOUNT_F_EMPTY_PATH),
                  "attach a mount at " + target, kMountMax);
}

// Each space ends a field: a name may contain other white space, and a source may be empty.
std::vector<MountLine> parse_mounts(const std::string& mountinfo) {
  std::vector<MountLine> mounts;
  for (std::string_view left = mountinfo; !left.empty();) {
    // 36 35 0:27 / /data rw shared:1 - btrfs /dev/vdb rw
    const std::string_view line = take_until(left, '\n');
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto front = split(line.substr(0, dash), ' ');
    const auto back = split(line.substr(dash + 3), ' ');
    if (front.size() < 5 || back.size() < 3) continue;
    MountLine& mount = mounts.emplace_back();
    std::from_chars(front[0].data(), front[0].data() + front[0].size(), mount.id);
    mount.device = front[2];
    mount.target = front[4];
    mount.type = back[0];
    mount.source = back[1];
    mount.options = back[2];
  }
  return mounts;
}

MountLine mount_of(const std::string& path) {
  struct statx status {};
  check(syscall(SYS_statx, AT_FDCWD, path.c_str(), 0, STATX_MNT_ID, &status), "inspect " + path);
  for (MountLine& mount : parse_mounts(read_file("/proc/self/mountinfo"))) {
    if (mount.id == status.stx_mnt_id) return std::move(mount);
  }
  return {};
}

Fd make_file_system(const std::string& type,
                    const std::vector<std::pair<std::string, std::string>>& options,
                    const MountAttributes& attributes) {
  Fd context(fsopen(type.c_str(), FSOPEN_CLOEXEC));
  if (!context && errno == ENODEV) {
    throw Error(Code::unsupported, "this kernel does not support the file system \"" + type + "\"");
  }
  const std::string what = "mount " + type;
  check(context.get(), what);
  set_options(context.get(), what, options);
  if (fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) < 0) {
    throw_with_kernel_log(context.get(), what, errno);
  }
  int mount_fd =
      fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attribute_bits(attributes)));
  if (mount_fd < 0) throw_with_kernel_log(context.get(), what, errno);
  return Fd(mount_fd);
}

void reconfigure_file_system(const std::string& path,
                             const std::vector<std::pair<std::string, std::string>>& options) {
  const std::string what = "change the mount at " + path;
  const Fd context(check(fspick(AT_FDCWD, path.c_str(), FSPICK_CLOEXEC), what));
  set_options(context.get(), what, options);
  if (fsconfig(context.get(), FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0) < 0)
    throw_with_kernel_log(context.get(), what, errno);
}

}  // namespace moorage::base
