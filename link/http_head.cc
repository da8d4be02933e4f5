#include "link/http_head.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace moorage::link {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view next_line(std::string_view& text) {
  const size_t end = text.find(kLineEnd);
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + kLineEnd.size());
  return line;
}

}  // namespace

std::string HttpHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

uint64_t HttpHead::number(std::string_view name) const {
  const std::string text = header(name);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::optional<HttpHead> parse_http_head(std::string_view text) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  HttpHead head;
  head.bytes = end + 4;
  std::string_view rest = text.substr(0, end + 2);
  const std::string_view first = next_line(rest);
  const size_t method_end = first.find(' ');
  const size_t path_end = first.find(' ', method_end + 1);
  if (method_end == std::string_view::npos || path_end == std::string_view::npos)
    throw Error(Code::invalid_argument, "not a request of HTTP");
  head.method = first.substr(0, method_end);
  head.path = first.substr(method_end + 1, path_end - method_end - 1);
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos)
      throw Error(Code::invalid_argument, "not a header of HTTP");
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    head.headers.emplace_back(lower(line.substr(0, colon)), value);
  }
  return head;
}

std::string head_for_spool(const HttpHead& head) {
  std::string text = head.method + " " + head.path + " HTTP/1.1\r\n";
  for (const auto& [name, value] : head.headers) {
    // What comes with descriptors of this host.
    if (name == "moorage-journal" || name == "moorage-kill-fd" || name == "moorage-tag" ||
        name == "moorage-spool") {
      continue;
    }
    text += name + ": " + value + "\r\n";
  }
  return text + "moorage-spool: 1\r\n\r\n";
}

}  // namespace moorage::link
