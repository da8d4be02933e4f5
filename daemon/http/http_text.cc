#include "daemon/http/http_text.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace moorage::daemon {
namespace {

constexpr std::pair<int, std::string_view> kPhrases[] = {{200, "OK"},
                                                         {201, "Created"},
                                                         {204, "No Content"},
                                                         {400, "Bad Request"},
                                                         {403, "Forbidden"},
                                                         {404, "Not Found"},
                                                         {405, "Method Not Allowed"},
                                                         {408, "Request Timeout"},
                                                         {409, "Conflict"},
                                                         {413, "Content Too Large"},
                                                         {429, "Too Many Requests"},
                                                         {431, "Request Header Fields Too Large"},
                                                         {501, "Not Implemented"},
                                                         {502, "Bad Gateway"},
                                                         {503, "Service Unavailable"},
                                                         {504, "Gateway Timeout"},
                                                         {507, "Insufficient Storage"}};

std::string_view reason_phrase(int status) {
  for (const auto& [one, phrase] : kPhrases)
    if (one == status) return phrase;
  return status < 500 ? "Refused" : "Error";
}

// A header value may contain outside text; it must not start another header line.
void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  std::copy_if(value.begin(), value.end(), std::back_inserter(out),
               [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
  out.append("\r\n");
}

}  // namespace

std::string percent_decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      decoded += ' ';
      continue;
    }
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    const bool whole = i + 2 < text.size();
    const auto parsed =
        whole ? std::from_chars(digits, digits + 2, value, 16) : std::from_chars_result{};
    if (!whole || parsed.ec != std::errc() || parsed.ptr != digits + 2 || value == 0) {
      throw Error(Code::invalid_argument, "the request target contains a malformed %-escape");
    }
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

std::vector<std::string_view> Target::segments() const {
  std::vector<std::string_view> parts;
  std::string_view rest = path;
  if (rest.starts_with('/')) rest.remove_prefix(1);
  for (;;) {
    const size_t slash = rest.find('/');
    parts.push_back(rest.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    rest.remove_prefix(slash + 1);
  }
}

Target parse_target(std::string_view target) {
  if (!target.starts_with('/')) {
    throw Error(Code::invalid_argument, "the request target must be a path that starts with /");
  }
  Target result;
  const size_t mark = target.find('?');
  result.path = std::string(target.substr(0, mark));
  if (mark == std::string_view::npos) return result;
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string name = percent_decode(pair.substr(0, equals), true);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    const auto [found, first] = result.query.try_emplace(name);
    if (!first) found->second += '\0';
    found->second += percent_decode(value, true);
  }
  return result;
}

std::string response_head(const Head& head) {
  std::string out = "HTTP/1.1 " + std::to_string(head.status) + " ";
  out.append(reason_phrase(head.status)).append("\r\n");
  if (head.status != 204) append_header(out, "Content-Type", head.content_type);
  // Keeps a browser from rendering an agent's file as a page.
  append_header(out, "X-Content-Type-Options", "nosniff");
  if (head.length && head.status != 204) {
    append_header(out, "Content-Length", std::to_string(*head.length));
  } else if (head.chunked) {
    append_header(out, "Transfer-Encoding", "chunked");
  }
  if (head.close) append_header(out, "Connection", "close");
  if (head.headers) {
    for (const auto& [name, value] : *head.headers) append_header(out, name, value);
  }
  return out.append("\r\n");
}

std::string chunk_start(size_t bytes) {
  char digits[24];
  const auto written = std::to_chars(digits, digits + sizeof(digits), bytes, 16);
  return std::string(digits, written.ptr).append("\r\n");
}

}  // namespace moorage::daemon
