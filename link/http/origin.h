// Where a provider's API listens: scheme, host, port and what stands before each path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moorage::link {

struct Origin {
  bool tls = true;
  std::string host;  // a name or an address, without brackets
  uint16_t port = 443;
  std::string prefix;  // "/api", or empty; never ends in '/'

  std::string authority() const;  // as of a Host header
  std::string str() const;        // for messages
  bool is_loopback() const;
};

// "https://host[:port][/prefix]". Throws invalid_argument. Plain http sends the provider's key in
// the clear, so it needs a loopback address or `allow_plain_http`.
Origin parse_origin(std::string_view url, bool allow_plain_http);

// All bytes but unreserved characters (RFC 3986), for one part of a path or a value of a query.
std::string percent_encode(std::string_view bytes);

}  // namespace moorage::link
