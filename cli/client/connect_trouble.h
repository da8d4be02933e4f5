// Explains to a person why the daemon's socket cannot be reached.
#pragma once

#include <string>

#include "base/error.h"

namespace moorage::cli {

// unavailable or permission_denied; `cause` comes from base::connect_unix.
Error connect_trouble(const std::string& socket_path, const Error& cause);

}  // namespace moorage::cli
