// IP addresses and their ranges, and the question that decides what a sandbox may reach: whether an
// address belongs to the public internet. Source: IANA's IPv4 and IPv6 special-purpose address
// registries, and the addresses at which clouds serve credentials of the host.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct sockaddr;
struct sockaddr_storage;

namespace moorage::base {

struct IpAddress {
  std::array<uint8_t, 16> bytes{};  // in network order; IPv4 uses the first four
  bool v4 = false;

  std::string str() const;
  // Fills a socket address; returns its size.
  uint32_t to_socket(uint16_t port, sockaddr_storage& address) const;
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

std::optional<IpAddress> parse_address(std::string_view text);  // only the standard spellings
std::optional<IpAddress> address_of(const sockaddr& address);   // AF_INET and AF_INET6

struct AddressRange {
  IpAddress first;
  int bits = 0;  // of the prefix
};
// "10.0.0.0/8", "fd00::/8", or an address alone. Throws invalid_argument.
AddressRange parse_range(std::string_view text);
bool contains(const AddressRange& range, const IpAddress& address);

// Why the address is not one of the public internet, like "a private address (10.0.0.0/8)"; empty:
// it is public. Addresses that embed another one (mapped, NAT64, 6to4, Teredo) are never public.
std::string_view not_public(const IpAddress& address);

}  // namespace moorage::base
