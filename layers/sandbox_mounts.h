// The mounts of tree and home in a running sandbox, through its process 1. The daemon's own
// descriptors are copies of these mounts, with the same superblocks: a descriptor of the mounts
// themselves would keep them busy forever.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

#include "base/os/process.h"
#include "layers/overlay.h"

namespace moorage::layers {

inline constexpr const char* kTreePlace = "/workspace";
inline constexpr const char* kHomePlace = "/home/user";

// Copies of the mounts there, with their devices.
ActiveMounts copy_sandbox_mounts(const base::ProcessIdentity& init);

// Whether one of these processes holds the mounts by its working directory, or watches their files.
bool hold_mounts(const std::vector<pid_t>& members, const ActiveMounts& mounts);

// Whether a process watches files of these file systems through inotify or fanotify. The kernel
// lets a mount with watched files be unmounted, and the watches end with it (IN_UNMOUNT): a dev
// server elsewhere would never see another change. False for a process that ended. Also true if it
// has more marks than can be read quickly.
bool watches_any(pid_t process, const std::vector<dev_t>& devices);
// Parses the text of /proc/PID/fdinfo/N: one line for each mark.
bool marks_any(std::string_view fdinfo, const std::vector<dev_t>& devices);

// Replaces both mounts by `next` and turns `next` into copies of them. The whole sandbox must be
// frozen. False: something holds one of them (EBUSY); both are unchanged.
bool exchange_sandbox_mounts(const base::ProcessIdentity& init, ActiveMounts& next);

}  // namespace moorage::layers
