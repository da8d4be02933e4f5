// The life of the daemon: opens the store, constructs the services, serves until a signal.
#pragma once

#include "daemon/settings.h"

namespace moorage::daemon {

// Returns the exit status. Serves rescue mode if state.db cannot be read.
int serve(Settings settings);

}  // namespace moorage::daemon
