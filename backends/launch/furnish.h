// The inside of a container that an engine made, from outside, while its process 1 (the warden)
// waits: the host's /usr, private tmpfs, an own /sys; and what the engine shows of itself or of the
// host is taken away. The engine is told of none of it.
#pragma once

#include "request.h"

namespace moorage::launch {

void furnish(const Request& request);

}  // namespace moorage::launch
