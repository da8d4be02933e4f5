// A sandbox without isolation: the warden as an ordinary host process, in a mount namespace whose
// root shows everything of the host's, with the workspace at its place.
#pragma once

#include <sys/types.h>

#include "request.h"

namespace moorage::launch {

// Returns the warden's pid. It runs as host root; commands run as first_host_id + 1000
// (--user-base).
pid_t start_plain(const Request& request);

}  // namespace moorage::launch
