// Starts an unprivileged LXC container over the root that build_root made.
#pragma once

#include <sys/types.h>

#include "base/os/user_namespace.h"
#include "request.h"

namespace moorage::launch {

// Returns process 1's pid, seen from here. LXC's monitor remains as its parent; if it is killed,
// the container lives on. `ids` becomes its user namespace and may go once this has returned.
pid_t start_container(const Request& request, const base::UserNamespace& ids);

}  // namespace moorage::launch
