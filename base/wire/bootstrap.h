// How process 1 of a sandbox gets its sockets, the warden and the keeper of moorage-link alike: it
// connects to the one socket bind-mounted into the sandbox, sends a greeting, and receives
// descriptors: the listener, whose path exists only on the host, and the line for the network
// (network_line.h), which a daemon before 0.2 does not send. The greeting is the same in every
// release (docs/decisions/0308-versions.md); the protocol is negotiated afterwards.
#pragma once

#include <string>

#include "base/os/fd.h"

namespace moorage::base {

struct Bootstrapped {
  Fd listener;
  Fd network_line;  // may be empty
};
// Tries for 20 s, then throws; also throws if the first descriptor is not a listening unix socket.
Bootstrapped bootstrap(const std::string& path);
void check_listener(const Fd& listener);  // and makes it non-blocking

}  // namespace moorage::base
