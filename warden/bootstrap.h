// How the warden gets its listening socket: it connects to the one socket bind-mounted into the
// sandbox, sends a greeting, and receives the listener as a descriptor. The listener's path exists
// only on the host. The greeting is the same in every release (docs/decisions/0308-versions.md);
// the protocol is negotiated afterwards.
#pragma once

#include <string>

#include "base/os/fd.h"

namespace moorage::warden {

// Tries for 20 s, then throws; also throws if the descriptor is not a listening unix socket.
Fd fetch_listener(const std::string& bootstrap_path);
void check_listener(const Fd& listener);  // and makes it non-blocking

}  // namespace moorage::warden
