// Why the daemon's socket could not be reached, as a person needs it said.
#pragma once

#include <string>

#include "base/error.h"

namespace moorage::cli {

// unavailable or permission_denied; `cause` is what base::connect_unix threw.
base::Error connect_trouble(const std::string& socket_path, const base::Error& cause);

}  // namespace moorage::cli
