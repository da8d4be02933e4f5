// The mounts of tree and home in a running sandbox, through its process 1. The daemon's own
// descriptors are copies of these mounts, with the same superblocks: a descriptor of the mounts
// themselves would keep them busy forever.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/os/process.h"
#include "layers/overlay.h"

namespace moorage::layers {

inline constexpr const char* kTreePlace = "/workspace";
inline constexpr const char* kHomePlace = "/home/user";

// Copies of the mounts there, with their devices.
ActiveMounts copy_sandbox_mounts(const base::ProcessIdentity& init);

// Whether one of these processes holds the mounts by its working directory, or watches their files.
// The kernel lets a watched mount go, so the watch would be lost.
bool hold_mounts(const std::vector<pid_t>& members, const ActiveMounts& mounts);

// Replaces both mounts by `next` and turns `next` into copies of them. The whole sandbox must be
// frozen. False: something holds one of them (EBUSY); both are unchanged.
bool exchange_sandbox_mounts(const base::ProcessIdentity& init, ActiveMounts& next);

}  // namespace moorage::layers
