// mooraged --check: can this host run sandboxes?
#pragma once

#include "daemon/settings.h"

namespace moorage::daemon {

// Prints a line for each check. Returns the exit status: 0 if all passed.
int check_host(const Settings& settings);

}  // namespace moorage::daemon
