// A connection of the sandbox to a host, however it is carried: Connection passes its bytes on,
// BrokerConnection reads its requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "egress/dialer.h"

namespace moorage::egress {

class Carrier {
 public:
  struct Host {
    std::string name;
    uint16_t port = 0;
  };
  // The owner: knows how to reach the host, and hears of the end.
  struct Owner {
    virtual ~Owner() = default;
    // Must call carrier.dial(...) or carrier.fail(...), now or later while the carrier lives.
    virtual void find_way(Carrier& carrier) = 0;
    // Of a request, in plain HTTP; empty: it is not.
    virtual std::string why_refused(const Host& host, std::string_view method,
                                    std::string_view target) = 0;
    virtual void on_refused(Carrier& carrier, const std::string& why, bool quiet = false) = 0;
    virtual void on_unreachable(Carrier& carrier, const std::string& why) = 0;
    virtual void on_end(Carrier& carrier) = 0;  // destroys it; once
  };

  explicit Carrier(Host host) : host_(std::move(host)) {}
  virtual ~Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  const Host& host() const { return host_; }
  virtual void start() = 0;  // once the owner can find it
  virtual void dial(DialTarget target) = 0;
  virtual void fail(const std::string& why) = 0;  // there is no way
  // Resets both sides. The owner hears of the end, later.
  virtual void abort() = 0;

 protected:
  const Host host_;
};

}  // namespace moorage::egress
