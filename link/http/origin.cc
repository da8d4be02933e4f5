#include "link/http/origin.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/net/host_name.h"
#include "base/net/ip_address.h"
#include "base/net/url_path.h"

namespace moorage::link {
namespace {

constexpr size_t kMaxUrl = 2048;

[[noreturn]] void refuse(std::string_view url, const std::string& why) {
  throw Error(Code::invalid_argument, base::quoted_unless_secret(url.substr(0, 200)) + " " + why,
              "write it like https://api.example.com or https://host:8443/api");
}

uint16_t port_of(std::string_view text, std::string_view url) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    refuse(url, "has an invalid port");
  return port;
}

// Splits "host:port", "[::1]:port" or either without a port.
void take_authority(std::string_view text, std::string_view url, Origin& origin) {
  std::string_view host = text;
  std::optional<std::string_view> port;
  const size_t after = text.starts_with('[') ? text.find(']') : 0;
  if (after == std::string_view::npos) refuse(url, "has an invalid host");
  if (const size_t colon = text.find(':', after); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.size() > 2 && host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  origin.port = port ? port_of(*port, url) : (origin.tls ? 443 : 80);
  const auto address = base::parse_address(host);
  origin.host = address ? address->str() : base::host_name(host);
}

}  // namespace

std::string Origin::authority() const {
  std::string text = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (port != (tls ? 443 : 80)) text += ":" + std::to_string(port);
  return text;
}

std::string Origin::str() const { return (tls ? "https://" : "http://") + authority() + prefix; }

bool Origin::is_loopback() const {
  if (host == "localhost") return true;
  const auto address = base::parse_address(host);
  return address && (address->v4 ? address->bytes[0] == 127 : address->str() == "::1");
}

Origin parse_origin(std::string_view url, bool allow_plain_http) {
  Origin origin;
  std::string_view rest = url;
  if (url.size() > kMaxUrl) refuse(url, "is too long");
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
    origin.tls = false;
  } else {
    refuse(url, "does not begin with https://");
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  take_authority(rest.substr(0, slash), url, origin);
  origin.prefix = rest.substr(slash);
  while (origin.prefix.ends_with('/')) origin.prefix.pop_back();
  const bool printable = std::all_of(origin.prefix.begin(), origin.prefix.end(), [](char c) {
    return c > ' ' && c < 0x7f && c != '?' && c != '#' && c != '"';
  });
  if (!printable || (!origin.prefix.empty() && !base::is_plain_path(origin.prefix)))
    refuse(url, "has an invalid path");
  if (!origin.tls && !allow_plain_http && !origin.is_loopback()) {
    throw Error(Code::invalid_argument, origin.str() + " would send the key in the clear",
                "use https://, or set allow_plain_http for a network that only you can read");
  }
  return origin;
}

std::string percent_encode(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    const bool plain = (value >= '0' && value <= '9') || (value >= 'A' && value <= 'Z') ||
                       (value >= 'a' && value <= 'z') || value == '-' || value == '.' ||
                       value == '_' || value == '~';
    if (plain) {
      text += byte;
    } else {
      text += {'%', kDigits[value >> 4], kDigits[value & 15]};
    }
  }
  return text;
}

}  // namespace moorage::link
