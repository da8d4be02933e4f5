#include "base/net/url_path.h"

#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr std::string_view kHex = "0123456789abcdefABCDEF";

bool is_escape(std::string_view text) {
  return text.size() >= 3 && text[0] == '%' &&
         text.substr(1, 2).find_first_not_of(kHex) == text.npos;
}

char escaped(std::string_view text) {
  return static_cast<char>(std::stoi(std::string(text.substr(1, 2)), nullptr, 16));
}

bool needs_no_escape(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '~';
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

bool is_plain_path(std::string_view path) {
  if (path.find("//") != path.npos || path.find_first_of("\\;#\t ") != path.npos) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 127) return false;
  }
  for (size_t at = path.find('%'); at != path.npos; at = path.find('%', at + 1)) {
    if (!is_escape(path.substr(at))) return false;
    // "%2e", "%2f", "%5c", "%00", "%25" in any case: another reading of the path.
    const char c = escaped(path.substr(at));
    const bool control = static_cast<unsigned char>(c) < ' ' || c == 127;
    if (control || std::string_view("./\\%;#?").find(c) != path.npos) return false;
  }
  for (const std::string_view part : split(path, '/')) {
    if (part == "." || part == "..") return false;
  }
  return true;
}

std::string usual_path(std::string_view path) {
  std::string usual;
  for (size_t at = 0; at < path.size(); ++at) {
    const std::string_view rest = path.substr(at);
    if (!is_escape(rest)) {
      usual += rest[0];
    } else {
      const char c = escaped(rest);
      usual +=
          needs_no_escape(c) ? std::string(1, c) : std::string{'%', upper(rest[1]), upper(rest[2])};
      at += 2;
    }
  }
  return usual;
}

bool path_is_below(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  return path.size() == prefix.size() || prefix.ends_with('/') || path[prefix.size()] == '/';
}

}  // namespace moorage::base
