// HTTP/1.1 as text: splits request targets (RFC 3986), builds heads and chunks of answers (RFC
// 9112). Beast parses requests; this file has no state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moorage::daemon {

// %XX to bytes, any byte but NUL; invalid_argument if malformed. In a query '+' is a space, as
// forms and URL libraries write it; a literal plus is %2B.
std::string percent_decode(std::string_view text, bool plus_is_space);

struct Target {
  std::string path;                                // as sent
  std::vector<std::string_view> segments() const;  // of path, not decoded; without the first '/'
  // Decoded. Several values of one name are separated by NUL, which no value contains.
  std::map<std::string, std::string> query;
};
Target parse_target(std::string_view target);

struct Head {
  int status = 200;
  std::string_view content_type;
  const std::vector<std::pair<std::string, std::string>>* headers = nullptr;
  std::optional<uint64_t> length;  // unset: chunked, or until the connection ends
  bool chunked = false;
  bool close = false;
};
std::string response_head(const Head& head);

std::string chunk_start(size_t bytes);  // the bytes and kChunkEnd follow
inline constexpr std::string_view kChunkEnd = "\r\n";
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace moorage::daemon
