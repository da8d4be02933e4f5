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
  const std::string_view rest = std::string_view(held_).substr(taken_);
  if (rest.empty()) return std::nullopt;
  const auto kind = static_cast<uint8_t>(rest[0]);
  if (kind < static_cast<uint8_t>(RelayKind::line) || kind > static_cast<uint8_t>(RelayKind::place))
    throw Error(Code::corrupted, "not a message about a network: kind " + std::to_string(kind));
  if (rest.size() < kRelayHeaderBytes) return std::nullopt;
  const size_t size = number_at<uint16_t>(&rest[1]);
  if (rest.size() < kRelayHeaderBytes + size) return std::nullopt;
  taken_ += kRelayHeaderBytes + size;
  return RelayFrame{static_cast<RelayKind>(kind),
                    std::string(rest.substr(kRelayHeaderBytes, size))};
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
