// The HTTP/1.1 server on a Unix socket: one loop thread, one coroutine per connection, blocking
// verbs on the lanes. A connection's failure stays in the connection. Every wait has a limit, see
// Limits. The socket's mode and group decide who may connect; SO_PEERCRED identifies the peer.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/os/fd.h"
#include "daemon/http/dispatcher.h"
#include "daemon/http/router.h"
#include "daemon/http/worker_pools.h"

namespace moorage::daemon {

struct Limits {
  size_t max_connections = 1024;
  size_t max_connections_per_uid = 512;  // of users other than root
  uint32_t header_bytes = 64 << 10;
  uint64_t json_bytes = 4 << 20;                // of a JSON body
  std::chrono::milliseconds idle{75'000};       // between requests
  std::chrono::milliseconds header{10'000};     // from its first byte to its last
  std::chrono::milliseconds json_body{30'000};  // whole
  std::chrono::milliseconds progress{60'000};   // without a byte read or written
  std::chrono::milliseconds keep_alive{15'000};
  std::chrono::milliseconds drain{10'000};  // from stop() to the end of run()
};

class Server {
 public:
  struct Parts {
    const Router& router;
    Dispatcher& dispatcher;
    WorkerPools& worker_pools;
    Limits limits;
  };
  explicit Server(const Parts& parts);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void listen(base::Fd listener);
  // Repeats `work` on the upkeep lane, `pause` after it ended.
  void every(std::chrono::milliseconds pause, std::function<void()> work);
  // Serves until stop(), or with `until_signalled` until SIGTERM or SIGINT; then finishes running
  // requests. False: some still ran when the drain time was over, and the process should end
  // without waiting for them.
  bool run(bool until_signalled);
  void stop();  // from any thread

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moorage::daemon
