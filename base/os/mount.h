// The mount API of Linux 5.12+ as far as Moorage needs it (mount_setattr(2), fsopen(2),
// move_mount(2)). Detached mounts are descriptors: unless attached, they vanish with their last
// descriptor. Facts from design section 12: 6.1 refuses both overlay over detached idmapped mounts
// and cloning a detached mount, so layers are first attached in a private mount namespace
// (layers/mounter.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/os/fd.h"

namespace moorage::base {

// One line, for both uid_map and gid_map.
struct IdMapLine {
  uint32_t inside = 0;   // for an idmapped mount: the id on disk
  uint32_t outside = 0;  // for an idmapped mount: the id it shows
  uint32_t count = 0;
};

// A descriptor of a user namespace with these maps and no process in it.
Fd make_user_namespace(const std::vector<IdMapLine>& map);

struct MountAttributes {
  bool read_only = false;
  bool nosuid = false;
  bool nodev = false;
  bool noexec = false;
};

// A detached copy of the mount at path (a bind mount not yet attached), not recursive.
Fd clone_mount(const std::string& path);
void set_mount_attributes(int mount_fd, const MountAttributes& attributes);
// Mounts made on it later do not reach the mount that it copies.
void set_mount_slave(int mount_fd);
void set_mount_idmap(int mount_fd, int user_namespace_fd);
void set_propagation_private(const std::string& path);  // recursive
void set_propagation_slave(const std::string& path);    // recursive
// Does not follow a link in target's last part.
void attach_mount(int mount_fd, const std::string& target);

// A line of /proc/PID/mountinfo (proc(5)), its fields unchanged: a space is \040.
struct MountLine {
  uint64_t id = 0;
  std::string device;  // of the superblock, "8:1": stat(2) shows another per btrfs subvolume
  std::string target;
  std::string type;  // "ext4"
  std::string source;
  std::string options;  // of the superblock
};
std::vector<MountLine> parse_mounts(const std::string& mountinfo);
MountLine mount_of(const std::string& path);  // the mount under it; empty if not listed

// A new file system as a detached mount. An option with an empty value is a flag; the kernel
// accepts at most 255 bytes per value. On refusal the message includes the kernel's reason.
Fd make_file_system(const std::string& type,
                    const std::vector<std::pair<std::string, std::string>>& options,
                    const MountAttributes& attributes);

// Changes the options of the file system mounted at path. List all of them: some file systems reset
// the others to their defaults.
void reconfigure_file_system(const std::string& path,
                             const std::vector<std::pair<std::string, std::string>>& options);

}  // namespace moorage::base
