// Work in the mount namespace of another process, on a thread of its own that ends with it. Paths
// are that process's there; rights are ours. What the namespace inherited when it was made is
// locked (umount(2) says EINVAL, to the host's root too), so what shall be exchanged later is
// attached from here in the first place.
#pragma once

#include <functional>

#include "base/process.h"

namespace moorage::base {

// Throws what work throws. unavailable: the process is gone.
void in_mount_namespace(const ProcessIdentity& of, const std::function<void()>& work);

}  // namespace moorage::base
