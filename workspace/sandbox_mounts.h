// The mounts of tree and home in a running sandbox, by its process 1. The daemon's own descriptors
// are of copies of these mounts, of the same superblocks: one of the mounts themselves would make
// them busy for ever.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/process.h"
#include "workspace/overlay.h"

namespace moorage::workspace {

inline constexpr const char* kTreePlace = "/workspace";
inline constexpr const char* kHomePlace = "/home/user";

// Copies of what is mounted there, with their devices.
ActiveMounts copy_sandbox_mounts(const base::ProcessIdentity& init);

// Whether one of these processes surely holds the mounts, by its working directory; or watches
// files of them, which the kernel would not take for a reason to keep them.
bool hold_mounts(const std::vector<pid_t>& members, const ActiveMounts& mounts);

// Puts `next` in the place of both, and turns it into copies of these. All of the sandbox is
// frozen. False: something holds one of them (EBUSY), and both are as they were.
bool exchange_sandbox_mounts(const base::ProcessIdentity& init, ActiveMounts& next);

}  // namespace moorage::workspace
