// Between a sandbox's warden and its moorage-egress outside: a SOCK_SEQPACKET pair. The warden
// makes sockets in the sandbox's network namespace and hands them over; it reads nothing from them.
//
//   warden:  "dns"                    with three sockets: UDP and TCP at 127.0.0.53:53, sock_diag.
//                                     Without the last one for a sandbox on another machine, whose
//                                     moorage-link speaks here in the warden's place (0380)
//   egress:  "listen 198.18.3.4 443"
//   warden:  "listening 198.18.3.4 443"  with the socket; or "refused 198.18.3.4 443 ERRNO"
//
// Answers come in the order of the requests. When either side closes its end, the sandbox or its
// egress is over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::base {

inline constexpr std::string_view kLineDns = "dns";
inline constexpr size_t kMaxLineMessage = 256;
inline constexpr size_t kMaxResolverSockets = 3;
inline constexpr const char* kResolverInside = "127.0.0.53";
inline constexpr uint16_t kResolverPort = 53;

struct LineMessage {
  enum class Kind { listen, listening, refused };
  Kind kind = Kind::listen;
  std::string address;  // as text, 198.18.0.0/15
  uint16_t port = 0;
  int error_number = 0;  // of refused
};

std::string line_text(const LineMessage& message);
// Empty: not one of these, or the address is not in the range.
std::optional<LineMessage> read_line_message(std::string_view text);

}  // namespace moorage::base
