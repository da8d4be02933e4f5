// mooraged --restore-store: makes the store from its replica.
#pragma once

#include <string>

#include "daemon/settings.h"

namespace moorage::daemon {

// Prints its progress. Returns the exit status: 0 if nothing is missing.
int restore(const Settings& settings, const std::string& replica);

}  // namespace moorage::daemon
