// A sandbox without isolation: the warden as an ordinary process of the host, in a mount namespace
// whose root shows all that the host's shows, and the workspace in its place.
#pragma once

#include <sys/types.h>

#include "request.h"

namespace moorage::launch {

// Returns the warden's pid. It runs as host root; commands run as first_host_id + 1000
// (--user-base).
pid_t start_plain(const Request& request);

}  // namespace moorage::launch
