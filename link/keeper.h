// The keeper of a sandbox on another machine: process 1 of the sandbox here. It does little, so
// that it does not die: it holds the listening socket, the journals of running commands and the
// provider's key, and starts the worker, which does everything else, again when that ends. It never
// reads a byte from elsewhere. The connections of the daemon wait in the socket's backlog
// meanwhile.
#pragma once

#include <string>

namespace moorage::link {

struct KeeperOptions {
  std::string bootstrap;  // as for a warden: base/wire/bootstrap.h
  std::string config;     // a file: base/wire/link_config.h
};

// Returns when the sandbox there was ended at the daemon's request, or this process was asked to.
void run_keeper(const KeeperOptions& options);

}  // namespace moorage::link
