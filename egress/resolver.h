// Names to addresses, for the one who dials: asks the host's resolvers through c-ares, with
// deadlines, keeps the answers for as long as they hold, and lets only addresses of the public
// internet through, or of the ranges that the operator opened. What is returned here is dialled as
// it is, so an answer that changes between check and use changes nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/net/ip_address.h"
#include "base/os/event_loop.h"

namespace moorage::egress {

struct ResolverOptions {
  std::vector<std::string> servers;  // "192.0.2.53", "[2001:db8::53]:5353"; asked in this order
  std::map<std::string, std::vector<base::IpAddress>> hosts;  // the host's own table, first
  std::vector<base::IpAddress> host;          // its own addresses, which no name may lead to
  std::vector<base::AddressRange> reachable;  // private ranges that may be dialled all the same
  int timeout_ms = 2000;                      // for the first try at each server
  int tries = 3;
};

struct Resolution {
  enum class Kind {
    found,
    no_such_name,  // upstream says so
    forbidden,     // it exists, but none of its addresses may be dialled
    failed,        // no answer
  };
  Kind kind = Kind::failed;
  std::vector<base::IpAddress> addresses;  // if found: not empty, IPv4 first
  std::string why;                         // otherwise: for people
};

class Resolver {
 public:
  using Done = std::function<void(const Resolution&)>;
  using Ticket = std::shared_ptr<Done>;

  explicit Resolver(base::Loop& loop);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Forgets what it knew. Throws invalid_argument for servers that are none.
  void configure(ResolverOptions options);
  // Calls done once, possibly before it returns, while the ticket lives. Questions for the same
  // name share one.
  [[nodiscard]] Ticket resolve(const std::string& name, Done done);

  static constexpr size_t kMaxQuestions = 256;  // at once
  static constexpr size_t kMaxKept = 4096;

 private:
  struct Channel;
  struct Question;
  struct Kept {
    Resolution resolution;
    int64_t until_ms = 0;
  };
  void ask(const std::string& name);
  void answer(const std::string& name, Resolution resolution, int ttl_s);
  Resolution judged(std::vector<base::IpAddress> addresses) const;
  void keep(const std::string& name, const Resolution& resolution, int ttl_s);

  base::Loop& loop_;
  ResolverOptions options_;
  std::map<std::string, Kept> kept_;
  std::map<std::string, std::vector<std::weak_ptr<Done>>> waiting_;
  std::unique_ptr<Channel> channel_;  // last: its end calls back
};

}  // namespace moorage::egress
