// Starts an unprivileged LXC container over the root that build_root made.
#pragma once

#include <sys/types.h>

#include "request.h"

namespace moorage::launch {

// Returns process 1's pid, seen from here. LXC's monitor stays behind as its parent; when the
// monitor is killed, the container lives on without one.
pid_t start_container(const Request& request);

}  // namespace moorage::launch
