// Runs work in another process's mount namespace, on a thread that ends with the work. Paths are
// that process's; permissions are ours. Mounts that the namespace inherited at creation are locked
// (umount(2) returns EINVAL, even to the host's root), so mounts to be exchanged later must be
// attached from here in the first place.
#pragma once

#include <functional>

#include "base/os/process.h"

namespace moorage::base {

// Rethrows what work throws. Throws unavailable if the process is gone.
void in_mount_namespace(const ProcessIdentity& of, const std::function<void()>& work);

}  // namespace moorage::base
