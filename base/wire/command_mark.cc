#include "base/wire/command_mark.h"

#include <charconv>

namespace moorage::base {
namespace {

constexpr std::string_view kCommand = "ex_";
constexpr uint32_t kLoopback = 0x7f000001;
constexpr uint32_t kRange = 0x7f400000;  // 127.64.0.0/10
constexpr uint32_t kMarks = 0x3fffff;

}  // namespace

uint32_t command_mark(std::string_view tag) {
  if (!tag.starts_with(kCommand)) return 0;
  tag.remove_prefix(kCommand.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(tag.data(), tag.data() + tag.size(), number);
  if (error != std::errc() || end != tag.data() + tag.size()) return 0;
  return static_cast<uint32_t>(number % kMarks) + 1;
}

IpAddress marked_address(uint32_t mark) {
  const uint32_t number = mark == 0 ? kLoopback : kRange | (mark & kMarks);
  IpAddress address;
  address.v4 = true;
  for (unsigned i = 0; i < sizeof number; ++i)
    address.bytes[i] = static_cast<uint8_t>(number >> (24 - 8 * i));
  return address;
}

uint32_t mark_of(const IpAddress& address) {
  if (!address.v4) return 0;
  uint32_t number = 0;
  for (unsigned i = 0; i < sizeof number; ++i) number = number << 8 | address.bytes[i];
  return (number & ~kMarks) == kRange ? number & kMarks : 0;
}

}  // namespace moorage::base
