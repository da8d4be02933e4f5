// What moorage-link and moorage-outpost say about the network of a sandbox on another machine. The
// warden there makes the sockets inside, as everywhere; outpost holds them, and link joins each
// connection to the sockets here that moorage-egress uses (network_line.h). So names, rules and
// credentials are judged here, and egress sees the sandbox as one of this machine.
//
// Channels `network` and `accept` (outpost_requests.h) carry frames; all of an `accept` channel
// after its one frame is bytes of the connection:
//
//   u8 kind, u16 payload bytes (little endian), payload
//   line       a message of network_line.h: link sends `listen`, outpost the answers, in any order
//   datagram   6 bytes that name the socket inside, then a question for the resolver (from outpost)
//              or its answer (from link, with the same 6 bytes). May be lost, as datagrams may
//   place      "198.18.3.4 443": where a connection inside was made; or the resolver's place
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace moorage::base {

enum class RelayKind : uint8_t { line = 1, datagram = 2, place = 3 };

inline constexpr size_t kAskerBytes = 6;
inline constexpr size_t kMaxRelayPayload = 65'535;
inline constexpr size_t kRelayHeaderBytes = 3;
// Connections of a sandbox that are carried at the same time: those of moorage-egress
// (NetworkLimits), and of its resolver.
inline constexpr size_t kMaxRelayed = 576;

struct RelayFrame {
  RelayKind kind = RelayKind::line;
  std::string payload;
};

std::string relay_frame(RelayKind kind, std::string_view payload);

// Takes what came on a channel. The peer is hostile: next() throws corrupted for an invalid
// frame, and holds at most one that is not whole.
class RelayReader {
 public:
  void add(std::string_view bytes) {
    held_.erase(0, std::exchange(taken_, 0));
    held_ += bytes;
  }
  std::optional<RelayFrame> next();
  // The bytes after the last frame.
  std::string take_rest() { return std::exchange(held_, {}).substr(std::exchange(taken_, 0)); }

 private:
  std::string held_;
  size_t taken_ = 0;  // at its front: to erase them for each small frame would take long
};

struct RelayPlace {
  std::string address;
  uint16_t port = 0;
  auto operator<=>(const RelayPlace&) const = default;
};
std::string place_text(const RelayPlace& place);
// Empty: neither an address of 198.18.0.0/15 with a port, nor the resolver.
std::optional<RelayPlace> read_place(std::string_view text);

}  // namespace moorage::base
