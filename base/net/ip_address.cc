#include "base/net/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace moorage::base {
namespace {

struct Special {
  const char* range;
  const char* reason;
};

constexpr Special kSpecial[] = {
    {"0.0.0.0/8", "this host (0.0.0.0/8)"},
    {"10.0.0.0/8", "a private address (10.0.0.0/8)"},
    {"100.64.0.0/10", "an address of a carrier's NAT (100.64.0.0/10)"},
    {"127.0.0.0/8", "a loopback address (127.0.0.0/8)"},
    // Also the metadata service of most clouds.
    {"169.254.0.0/16", "a link-local address (169.254.0.0/16)"},
    {"172.16.0.0/12", "a private address (172.16.0.0/12)"},
    {"192.0.0.0/24", "a protocol assignment (192.0.0.0/24)"},
    {"192.0.2.0/24", "a documentation address (192.0.2.0/24)"},
    {"192.88.99.0/24", "a 6to4 relay (192.88.99.0/24)"},
    {"192.168.0.0/16", "a private address (192.168.0.0/16)"},
    {"198.18.0.0/15", "an address of the sandbox (198.18.0.0/15)"},
    {"198.51.100.0/24", "a documentation address (198.51.100.0/24)"},
    {"203.0.113.0/24", "a documentation address (203.0.113.0/24)"},
    {"224.0.0.0/4", "a multicast address (224.0.0.0/4)"},
    {"240.0.0.0/4", "a reserved address (240.0.0.0/4)"},
    {"168.63.129.16", "the metadata service of a cloud (168.63.129.16)"},
    {"::", "this host (::)"},
    {"::1", "a loopback address (::1)"},
    {"::ffff:0:0/96", "an IPv4-mapped address (::ffff:0:0/96)"},
    {"64:ff9b::/96", "a NAT64 address (64:ff9b::/96)"},
    {"64:ff9b:1::/48", "a NAT64 address (64:ff9b:1::/48)"},
    {"2001::/32", "a Teredo address (2001::/32)"},
    {"2001::/23", "a protocol assignment (2001::/23)"},
    {"2001:db8::/32", "a documentation address (2001:db8::/32)"},
    {"2002::/16", "a 6to4 address (2002::/16)"},
    {"3fff::/20", "a documentation address (3fff::/20)"},
    {"fc00::/7", "a private address (fc00::/7)"},
    {"fe80::/10", "a link-local address (fe80::/10)"},
    {"ff00::/8", "a multicast address (ff00::/8)"},
};
constexpr const char* kGlobalV6 = "2000::/3";  // all that IANA has assigned to the public

struct Known {
  AddressRange range;
  std::string_view reason;
};

const std::vector<Known>& known_ranges() {
  static const std::vector<Known> ranges = [] {
    std::vector<Known> list;
    for (const Special& special : kSpecial)
      list.push_back({parse_range(special.range), special.reason});
    return list;
  }();
  return ranges;
}

}  // namespace

std::optional<IpAddress> parse_address(std::string_view text) {
  const std::string copy(text);
  if (copy.size() != std::strlen(copy.c_str())) return std::nullopt;
  IpAddress address;
  address.v4 = copy.find(':') == std::string::npos;
  if (inet_pton(address.v4 ? AF_INET : AF_INET6, copy.c_str(), address.bytes.data()) != 1)
    return std::nullopt;
  return address;
}

std::string IpAddress::str() const {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(v4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
}

uint32_t IpAddress::to_socket(uint16_t port, sockaddr_storage& address) const {
  address = {};
  if (v4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, bytes.data(), sizeof in.sin_addr);
    std::memcpy(&address, &in, sizeof in);
    return sizeof in;
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  std::memcpy(&in.sin6_addr, bytes.data(), sizeof in.sin6_addr);
  std::memcpy(&address, &in, sizeof in);
  return sizeof in;
}

std::optional<IpAddress> address_of(const sockaddr& address) {
  IpAddress result;
  if (address.sa_family == AF_INET) {
    result.v4 = true;
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    std::memcpy(result.bytes.data(), &in.sin_addr, sizeof in.sin_addr);
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    std::memcpy(result.bytes.data(), &in.sin6_addr, sizeof in.sin6_addr);
  } else {
    return std::nullopt;
  }
  return result;
}

AddressRange parse_range(std::string_view text) {
  const size_t slash = text.find('/');
  const auto first = parse_address(text.substr(0, slash));
  const auto refuse = [text] {
    throw Error(Code::invalid_argument, "'" + std::string(text) + "' is not an address range",
                "write it like 10.0.0.0/8 or fd00::/8");
  };
  if (!first) refuse();
  AddressRange range{*first, first->v4 ? 32 : 128};
  if (slash == std::string_view::npos) return range;
  const std::string_view bits = text.substr(slash + 1);
  const int most = range.bits;
  const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), range.bits);
  if (error != std::errc() || end != bits.data() + bits.size() || range.bits < 0 ||
      range.bits > most) {
    refuse();
  }
  return range;
}

bool contains(const AddressRange& range, const IpAddress& address) {
  if (range.first.v4 != address.v4) return false;
  for (int bit = 0; bit < range.bits; bit += 8) {
    const int left = std::min(8, range.bits - bit);
    const int mask = (0xff << (8 - left)) & 0xff;
    const auto at = static_cast<size_t>(bit / 8);
    if (((range.first.bytes[at] ^ address.bytes[at]) & mask) != 0) return false;
  }
  return true;
}

std::string_view not_public(const IpAddress& address) {
  for (const Known& known : known_ranges()) {
    if (contains(known.range, address)) return known.reason;
  }
  static const AddressRange global = parse_range(kGlobalV6);
  if (!address.v4 && !contains(global, address)) return "an address that nobody was assigned";
  return {};
}

}  // namespace moorage::base
