// Runs work in a namespace of another process, on a thread that ends with the work; permissions are
// ours. Mounts that a mount namespace inherited at creation are locked (umount(2) returns EINVAL,
// even to the host's root), so mounts to be exchanged later must be attached from here in the first
// place.
#pragma once

#include <functional>

#include "base/os/process.h"

namespace moorage::base {

// These rethrow what work throws, and throw unavailable if the process is gone.

// Paths are those of that process.
void in_mount_namespace(const ProcessIdentity& of, const std::function<void()>& work);
// Paths stay ours, except that /proc/sys/net is that process's. Throws internal, and runs nothing,
// if that process has the host's network, as we do.
void in_network_namespace(const ProcessIdentity& of, const std::function<void()>& work);

}  // namespace moorage::base
