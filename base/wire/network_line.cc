#include "base/wire/network_line.h"

#include <arpa/inet.h>

#include <charconv>

#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr std::string_view kKinds[] = {"listen", "listening", "refused"};

std::optional<int> number_in(std::string_view text, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > most)
    return std::nullopt;
  return number;
}

bool in_range(const std::string& address) {
  in_addr parsed{};
  if (inet_pton(AF_INET, address.c_str(), &parsed) != 1) return false;
  return (ntohl(parsed.s_addr) & 0xfffe0000) == 0xc6120000;  // 198.18.0.0/15
}

}  // namespace

std::string line_text(const LineMessage& message) {
  std::string text(kKinds[static_cast<size_t>(message.kind)]);
  text += " " + message.address + " " + std::to_string(message.port);
  if (message.kind == LineMessage::Kind::refused) text += " " + std::to_string(message.error_number);
  return text;
}

std::optional<LineMessage> read_line_message(std::string_view text) {
  if (text.size() > kMaxLineMessage) return std::nullopt;
  const auto parts = split(text, ' ');
  LineMessage message;
  if (parts[0] == kKinds[1]) message.kind = LineMessage::Kind::listening;
  if (parts[0] == kKinds[2]) message.kind = LineMessage::Kind::refused;
  if (parts[0] != kKinds[static_cast<size_t>(message.kind)]) return std::nullopt;
  const bool refused = message.kind == LineMessage::Kind::refused;
  if (parts.size() != (refused ? 4 : 3)) return std::nullopt;
  message.address = parts[1];
  const auto port = number_in(parts[2], 65535);
  const auto error = refused ? number_in(parts[3], 4095) : 1;
  if (!port || !error || !in_range(message.address)) return std::nullopt;
  message.port = static_cast<uint16_t>(*port);
  if (refused) message.error_number = *error;
  return message;
}

}  // namespace moorage::base
