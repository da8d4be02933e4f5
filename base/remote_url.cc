#include "base/remote_url.h"

#include <algorithm>
#include <array>

namespace moorage::base {
namespace {

constexpr size_t kLongest = 4096;

bool is_plain(std::string_view text) {
  return !text.empty() && text.size() <= kLongest && !text.starts_with('-') &&
         std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '\\'; });
}

}  // namespace

std::string url_without_credentials(std::string_view url) {
  constexpr std::array<std::string_view, 4> kSchemes{"https", "http", "ssh", "git"};
  if (!is_plain(url)) return {};
  const size_t scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) {
    // host:path or user@host:path; "::" is a remote helper, and a slash before the colon a path.
    const size_t colon = url.find(':');
    const bool is_short = colon != std::string_view::npos && colon > 0 &&
                          !url.substr(colon).starts_with("::") && url.find('/') > colon;
    return is_short ? std::string(url) : "";
  }
  const std::string_view scheme = url.substr(0, scheme_end);
  if (std::find(kSchemes.begin(), kSchemes.end(), scheme) == kSchemes.end()) return {};
  const size_t at = scheme_end + 3;
  const std::string_view authority = url.substr(at, url.find_first_of("/?#", at) - at);
  const size_t user_end = authority.rfind('@');
  std::string_view user;
  if (user_end != std::string_view::npos && scheme == "ssh")
    user = authority.substr(0, std::min(authority.find(':'), user_end));
  const std::string_view host =
      user_end == std::string_view::npos ? authority : authority.substr(user_end + 1);
  if (host.empty()) return {};
  std::string result = std::string(scheme) + "://";
  if (!user.empty()) result.append(user).append("@");
  return result.append(host).append(url.substr(at + authority.size()));
}

}  // namespace moorage::base
