// The head of a request of the daemon, whose words can be trusted; its size is bounded by the
// reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moorage::link {

struct HttpHead {
  std::string method;
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  size_t bytes = 0;                                          // with the empty line

  std::string header(std::string_view name) const;  // "": none
  uint64_t number(std::string_view name) const;     // 0: none, or not a number
};

// Empty: not complete yet. Throws invalid_argument.
std::optional<HttpHead> parse_http_head(std::string_view text);

// The head of Start as the warden there must get it.
std::string head_for_spool(const HttpHead& head);

}  // namespace moorage::link
