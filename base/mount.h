// The mount API of Linux 5.12+ in the few shapes that Moorage uses (mount_setattr(2), fsopen(2),
// move_mount(2)). Detached mounts are descriptors: they vanish with their last descriptor unless
// attached. Facts kept from design section 12: 6.1 refuses overlay over detached idmapped mounts
// and cloning a detached mount, so layers are attached in a private mount namespace first
// (workspace/mounter.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace moorage::base {

// One line of a uid_map and gid_map alike.
struct IdMapLine {
  uint32_t inside = 0;   // for an idmapped mount: the id on disk
  uint32_t outside = 0;  // for an idmapped mount: the id that it shows
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

// A detached copy of the mount at path (a bind mount without a place), not recursive.
Fd clone_mount(int dir_fd, const std::string& path);
void set_mount_attributes(int mount_fd, const MountAttributes& attributes);
void set_mount_idmap(int mount_fd, int user_namespace_fd);
void set_propagation_private(const std::string& path);  // recursive
void set_propagation_slave(const std::string& path);    // recursive
// A link as the last part of target is not followed. An empty target is target_dir_fd itself: so
// for a place in a stranger's tree, open it first (open_in_root with O_PATH).
void attach_mount(int mount_fd, const std::string& target);
void attach_mount_at(int mount_fd, int target_dir_fd, const std::string& target);
void detach_lazily(const std::string& target);

// What a path is on, as /proc/self/mountinfo tells it: the device "8:1" of the superblock (of btrfs
// each subvolume has another one for stat(2)) and the type "ext4". Empty if it is not told.
struct MountOf {
  std::string device;
  std::string type;
};
MountOf mount_of(const std::string& path);

// A new file system as a detached mount. An option with an empty value is a flag; the kernel takes
// at most 255 bytes a value. What the kernel says about a refusal is in the message.
Fd make_file_system(const std::string& type,
                    const std::vector<std::pair<std::string, std::string>>& options,
                    const MountAttributes& attributes);

// Changes the options of the file system that is mounted at path. Name all of them: some file
// systems go back to their defaults for the others.
void reconfigure_file_system(const std::string& path,
                             const std::vector<std::pair<std::string, std::string>>& options);

}  // namespace moorage::base
