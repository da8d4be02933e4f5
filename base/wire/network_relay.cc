#include "base/wire/network_relay.h"

#include "base/error.h"
#include "base/little_endian.h"
#include "base/wire/network_line.h"

namespace moorage::base {

std::string relay_frame(RelayKind kind, std::string_view payload) {
  std::string frame(1, static_cast<char>(kind));
  append_number(frame, static_cast<uint16_t>(payload.size()));
  frame += payload;
  return frame;
}

std::optional<RelayFrame> RelayReader::next() {
  if (held_.empty()) return std::nullopt;
  const auto kind = static_cast<uint8_t>(held_[0]);
  if (kind < static_cast<uint8_t>(RelayKind::line) || kind > static_cast<uint8_t>(RelayKind::place))
    throw Error(Code::corrupted, "not a message about a network: kind " + std::to_string(kind));
  if (held_.size() < kRelayHeaderBytes) return std::nullopt;
  const size_t size = number_at<uint16_t>(&held_[1]);
  if (held_.size() < kRelayHeaderBytes + size) return std::nullopt;
  RelayFrame frame{static_cast<RelayKind>(kind), held_.substr(kRelayHeaderBytes, size)};
  held_.erase(0, kRelayHeaderBytes + size);
  return frame;
}

std::string place_text(const RelayPlace& place) {
  return place.address + " " + std::to_string(place.port);
}

std::optional<RelayPlace> read_place(std::string_view text) {
  if (text == place_text({kResolverInside, kResolverPort}))
    return RelayPlace{kResolverInside, kResolverPort};
  if (text.size() > kMaxLineMessage) return std::nullopt;
  const auto message = read_line_message("listen " + std::string(text));
  if (!message) return std::nullopt;
  return RelayPlace{message->address, message->port};
}

}  // namespace moorage::base
