#include "egress/name_table.h"

#include "base/digest.h"

namespace moorage::egress {
namespace {

constexpr uint32_t kRange = 0xc6120000;  // 198.18.0.0
constexpr uint32_t kPlaces = 1 << 17;    // a /15; the first and the last are not used

base::IpAddress address_at(uint32_t place) {
  base::IpAddress address;
  address.v4 = true;
  const uint32_t number = kRange + place;
  for (uint32_t i = 0; i < 4; ++i) address.bytes[i] = static_cast<uint8_t>(number >> (24 - 8 * i));
  return address;
}

uint32_t first_place(const std::string& name) {
  base::Sha256 digest;
  digest.add(name);
  uint32_t number = 0;
  for (const char c : digest.raw().substr(0, 4)) number = number << 8 | static_cast<uint8_t>(c);
  return number % (kPlaces - 2) + 1;
}

}  // namespace

std::optional<base::IpAddress> NameTable::address_of(const std::string& name) {
  if (const auto found = by_name_.find(name); found != by_name_.end())
    return address_at(found->second);
  if (by_name_.size() >= kMaxNames) return std::nullopt;
  uint32_t place = first_place(name);
  while (by_place_.contains(place)) place = place % (kPlaces - 2) + 1;
  by_name_.emplace(name, place);
  by_place_.emplace(place, name);
  return address_at(place);
}

const std::string* NameTable::name_at(const base::IpAddress& address) const {
  uint32_t number = 0;
  for (uint32_t i = 0; i < 4; ++i) number = number << 8 | address.bytes[i];
  const auto found = by_place_.find(number - kRange);
  return address.v4 && found != by_place_.end() ? &found->second : nullptr;
}

}  // namespace moorage::egress
