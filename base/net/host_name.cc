#include "base/net/host_name.h"

#include <idn2.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr size_t kMaxName = 253;  // RFC 1035: 255 bytes on the wire
constexpr size_t kMaxLabel = 63;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The underscore is not in RFC 952's list, but in names of real hosts.
bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
}

// Resolvers read a name as an IPv4 address if its last label is a number (WHATWG URL, "ends in a
// number"): decimal, octal, or hexadecimal with 0x.
bool ends_in_number(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (std::all_of(last.begin(), last.end(), is_digit)) return true;
  return last.starts_with("0x") &&
         last.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos;
}

struct Free {
  void operator()(uint8_t* text) const { idn2_free(text); }
};

std::string to_ascii(const std::string& text) {
  uint8_t* raw = nullptr;
  const int status = idn2_lookup_u8(reinterpret_cast<const uint8_t*>(text.c_str()), &raw,
                                    IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
  const std::unique_ptr<uint8_t, Free> ascii(raw);
  if (status != IDN2_OK) {
    throw Error(Code::invalid_argument,
                quoted_unless_secret(text) + " is not a host name: " + idn2_strerror(status));
  }
  return reinterpret_cast<const char*>(raw);
}

[[noreturn]] void refuse(std::string_view text, const std::string& hint) {
  throw Error(Code::invalid_argument, quoted_unless_secret(text) + " is not a host name", hint);
}

}  // namespace

std::optional<std::string> host_name_on_wire(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kMaxName) return std::nullopt;
  std::string name(text);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const std::string_view label : split(name, '.')) {
    if (label.empty() || label.size() > kMaxLabel) return std::nullopt;
    if (!std::all_of(label.begin(), label.end(), is_name_character)) return std::nullopt;
  }
  if (ends_in_number(name)) return std::nullopt;
  return name;
}

std::string host_name(std::string_view text) {
  if (text.find_first_of(std::string_view("/@ \0", 4)) != std::string_view::npos)
    refuse(text, "write only the host, like github.com");
  if (text.find_first_of("[]:") != std::string_view::npos)
    refuse(text, "hosts are allowed by name, not by address");
  const std::string ascii = is_ascii(text) ? std::string(text) : to_ascii(std::string(text));
  if (auto name = host_name_on_wire(ascii)) return *name;
  std::string bare = ascii.substr(0, ascii.find_last_not_of('.') + 1);
  if (!bare.empty() && ends_in_number(bare))
    refuse(text, "hosts are allowed by name, not by address");
  refuse(text, "a host name has letters, digits and hyphens, in parts of 1 to 63 characters");
}

bool authority_names(std::string_view authority, std::string_view host, uint16_t port) {
  const std::string suffix = ":" + std::to_string(port);
  if (authority.ends_with(suffix)) authority.remove_suffix(suffix.size());
  return host_name_on_wire(authority) == host;
}

std::string quoted_unless_secret(std::string_view text) {
  if (text.find_first_of("@?#") != text.npos) return "the URL";
  return "'" + std::string(text) + "'";
}

}  // namespace moorage::base
