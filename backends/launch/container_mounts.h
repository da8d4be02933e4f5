// Prepares the inside of an engine-made container from outside, while its process 1 (the warden)
// waits: mounts the host's /usr, private tmpfs and its own /sys, and removes what the engine
// reveals about itself or the host. The engine knows none of it.
#pragma once

#include "request.h"

namespace moorage::launch {

void furnish(const Request& request);

}  // namespace moorage::launch
