// Makes the connection to a host: tries its addresses one after another, or asks a proxy of the
// company's network for it (HTTP CONNECT). Never resolves by itself: the addresses were judged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/ip_address.h"
#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::egress {

struct DialTarget {
  std::vector<base::IpAddress> addresses;  // of the host, or of the proxy
  uint16_t port = 0;
  std::string connect_to;     // for a proxy: "host:port"; empty: the addresses are the host's
  std::string authorization;  // for a proxy: of the header Proxy-Authorization; may be empty
};

struct Dialed {
  Fd socket;          // non-blocking, TCP_NODELAY
  std::string first;  // bytes of the server that came with the proxy's answer
  std::string error;  // why not; the socket is empty then
};

class Dialer {
 public:
  using Done = std::function<void(Dialed)>;
  // Calls done once, later. `done` may destroy the dialer.
  Dialer(base::Loop& loop, DialTarget target, Done done);
  ~Dialer();
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  static constexpr std::chrono::milliseconds kPatienceEach{5'000};
  static constexpr std::chrono::milliseconds kPatienceProxy{20'000};

 private:
  void try_next();
  void on_connected(uint32_t events);
  void ask_proxy();
  void read_proxy();
  void give_up_on_this(const std::string& why);
  void finish(Dialed dialed);

  base::Loop& loop_;
  const DialTarget target_;
  Done done_;
  size_t next_ = 0;  // index of the address to try
  std::string error_;
  std::string answer_;  // of the proxy, so far
  Fd socket_;
  std::unique_ptr<base::Watch> watch_;
  base::Timer timer_;
};

}  // namespace moorage::egress
