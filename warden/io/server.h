// Accepts the daemon's connections, at most kMaxConnections; beyond that the longest idle one is
// closed, and if none is idle the new one gets 503 and is closed. Without free descriptors,
// accepting pauses for 100 ms. The listener must be non-blocking.
#pragma once

#include <list>
#include <memory>

#include "base/os/fd.h"
#include "warden/io/connection.h"
#include "warden/io/loop.h"

namespace moorage::warden {

inline constexpr size_t kMaxConnections = 64;

class Server {
 public:
  Server(Loop& loop, Fd listener, Connection::Handler handler);
  size_t connections() const { return connections_.size(); }

 private:
  void accept_all();
  bool make_room();

  Loop& loop_;
  Fd listener_;
  Connection::Handler handler_;
  std::list<std::shared_ptr<Connection>> connections_;  // oldest first
  Timer pause_;
  Watch watch_;
};

}  // namespace moorage::warden
