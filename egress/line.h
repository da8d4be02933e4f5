// The egress end of the line to a sandbox's warden (base/wire/network_line.h). What comes over it
// is untrusted: a socket is taken only if it is exactly what was asked for, and since its other
// owner is inside, no call on it may block.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/net/ip_address.h"
#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::egress {

struct ResolverSockets {
  Fd udp;
  Fd tcp;   // listening
  Fd diag;  // NETLINK_SOCK_DIAG in the sandbox's network namespace; empty: on another machine
};

class Line {
 public:
  using OnResolver = std::function<void(ResolverSockets)>;
  // The warden closed it, or broke the protocol. Must not destroy the line.
  using OnEnd = std::function<void()>;
  using Done = std::function<void(Fd listener)>;  // empty: it cannot listen there

  Line(base::Loop& loop, Fd socket, OnResolver on_resolver, OnEnd on_end);

  // Calls done once, later, while the line lives.
  void listen(const base::IpAddress& address, uint16_t port, Done done);
  size_t waiting() const { return requests_.size(); }

 private:
  struct Request {
    std::string address;
    uint16_t port = 0;
    Done done;
  };
  void on_events(uint32_t events);
  void send_some();
  bool receive_one();  // false: nothing there, or the line ended
  void take(std::string_view text, std::vector<Fd> fds);
  void end();

  Fd socket_;
  OnResolver on_resolver_;
  OnEnd on_end_;
  std::deque<Request> requests_;  // in order; the first `sent_` were sent
  size_t sent_ = 0;
  bool ended_ = false;
  base::Watch watch_;
};

}  // namespace moorage::egress
