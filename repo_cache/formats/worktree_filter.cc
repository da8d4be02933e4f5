#include "repo_cache/formats/worktree_filter.h"

#include <iconv.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

namespace moorage::repo_cache {

namespace {

struct TextStatistics {
  size_t zero = 0;
  size_t lone_cr = 0;
  size_t lone_lf = 0;
  size_t crlf = 0;
  size_t printable = 0;
  size_t other = 0;
  // git's heuristic: more than one odd byte in 128
  bool binary() const { return lone_cr || zero || (printable >> 7) < other; }
};

TextStatistics count_text(std::string_view bytes) {
  TextStatistics s;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(bytes[i]);
    if (c == '\r') {
      const bool pair = i + 1 < bytes.size() && bytes[i + 1] == '\n';
      ++(pair ? s.crlf : s.lone_cr);
      i += pair;
    } else if (c == '\n') {
      ++s.lone_lf;
    } else if (c == 0x7f || (c < 0x20 && c != '\b' && c != '\t' && c != 0x1b && c != '\f')) {
      ++s.other;
      s.zero += c == 0;
    } else {
      ++s.printable;
    }
  }
  if (bytes.ends_with('\x1a')) --s.other;  // DOS end-of-file mark
  return s;
}

bool is_automatic(LineEnds ends) {
  return ends == LineEnds::auto_lf || ends == LineEnds::auto_crlf;
}

// How many line ends get a CR.
size_t missing_cr(LineEnds ends, std::string_view bytes) {
  if (ends != LineEnds::crlf && ends != LineEnds::auto_crlf) return 0;
  const TextStatistics s = count_text(bytes);
  if (is_automatic(ends) && (s.lone_cr || s.crlf || s.binary())) return 0;
  return s.lone_lf;
}

std::optional<std::string> add_cr(LineEnds ends, std::string_view bytes) {
  const size_t missing = missing_cr(ends, bytes);
  if (missing == 0) return std::nullopt;
  std::string result;
  result.reserve(bytes.size() + missing);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r')) result += '\r';
    result += bytes[i];
  }
  return result;
}

std::optional<std::string> drop_cr(LineEnds ends, std::string_view bytes,
                                   std::optional<std::string_view> committed) {
  if (ends == LineEnds::keep || bytes.empty()) return std::nullopt;
  const TextStatistics s = count_text(bytes);
  if (s.crlf == 0) return std::nullopt;
  if (is_automatic(ends)) {
    if (s.binary()) return std::nullopt;
    if (committed && committed->find('\r') != std::string_view::npos) {
      const TextStatistics before = count_text(*committed);
      if (!before.binary() && before.crlf) return std::nullopt;
    }
  }
  std::string result;
  result.reserve(bytes.size() - s.crlf);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] == '\n') continue;
    result += bytes[i];
  }
  return result;
}

// Replaces the keywords "$Id$" and "$Id: ...$" on one line by `replacement`. On the way out it
// keeps an expanded keyword with a space inside the value, as it belongs to another system.
std::optional<std::string> replace_ident(std::string_view bytes, std::string_view replacement,
                                         bool outward) {
  if (bytes.find("$Id") == std::string_view::npos) return std::nullopt;
  std::string result;
  size_t at = 0;
  for (;;) {
    const size_t dollar = bytes.find('$', at);
    if (dollar == std::string_view::npos) break;
    result += bytes.substr(at, dollar + 1 - at);
    at = dollar + 1;
    const std::string_view rest = bytes.substr(at);
    if (rest.starts_with("Id$")) {
      result += replacement;
      at += 3;
      continue;
    }
    if (!rest.starts_with("Id:")) continue;
    const size_t end = rest.find('$', 3);
    if (end == std::string_view::npos) break;
    const std::string_view value = rest.substr(3, end - 3);
    if (value.find('\n') != std::string_view::npos) continue;
    const size_t space = value.find(' ', 1);
    if (outward && space != std::string_view::npos && space + 1 < value.size()) continue;
    result += replacement;
    at += end + 1;
  }
  result += bytes.substr(at);
  return result;
}

bool known_encoding(std::string_view name) {
  static constexpr std::array<std::string_view, 24> kNames = {
      "UTF-16",     "UTF-16LE",   "UTF-16BE",   "UTF-32",       "UTF-32LE",     "UTF-32BE",
      "ISO-8859-1", "ISO-8859-2", "ISO-8859-5", "ISO-8859-15",  "LATIN1",       "SHIFT-JIS",
      "SHIFT_JIS",  "EUC-JP",     "EUC-KR",     "WINDOWS-1250", "WINDOWS-1251", "WINDOWS-1252",
      "CP1251",     "CP1252",     "GB18030",    "GBK",          "BIG5",         "KOI8-R"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::optional<std::string> recode(const std::string& to, const std::string& from,
                                  std::string_view bytes) {
  const iconv_t converter = iconv_open(to.c_str(), from.c_str());
  // NOLINTNEXTLINE(performance-no-int-to-ptr): iconv_open's error value
  if (converter == reinterpret_cast<iconv_t>(-1)) return std::nullopt;
  std::string result;
  std::string buffer(64 << 10, '\0');
  char* input = const_cast<char*>(bytes.data());  // iconv does not write there
  size_t left = bytes.size();
  bool good = true;
  while (good && left > 0) {
    char* output = buffer.data();
    size_t room = buffer.size();
    good = iconv(converter, &input, &left, &output, &room) != static_cast<size_t>(-1) ||
           errno == E2BIG;
    result.append(buffer.data(), buffer.size() - room);
  }
  iconv_close(converter);
  if (!good) return std::nullopt;
  return result;
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// UTF-16 and UTF-32 get a byte order mark; the -BOM names define the order.
std::optional<std::string> encode(const std::string& name, std::string_view bytes) {
  const std::string encoding = upper_case(name);
  if (encoding == "UTF-16LE-BOM") {
    const auto body = recode("UTF-16LE", "UTF-8", bytes);
    return body ? std::optional("\xff\xfe" + *body) : std::nullopt;
  }
  if (encoding == "UTF-16BE-BOM") {
    const auto body = recode("UTF-16BE", "UTF-8", bytes);
    return body ? std::optional("\xfe\xff" + *body) : std::nullopt;
  }
  if (!known_encoding(encoding)) return std::nullopt;
  return recode(encoding, "UTF-8", bytes);
}

std::optional<std::string> decode(const std::string& name, std::string_view bytes) {
  std::string encoding = upper_case(name);
  if (encoding == "UTF-16LE-BOM" || encoding == "UTF-16BE-BOM") encoding = "UTF-16";
  if (!known_encoding(encoding)) return std::nullopt;
  return recode("UTF-8", encoding, bytes);
}

// Replaces the bytes so far by a step's result.
void take(std::optional<std::string> step, std::optional<std::string>& result) {
  if (step) result = std::move(step);
}

}  // namespace

std::optional<std::string> to_worktree(const Conversion& conversion, std::string_view blob,
                                       const std::string& oid) {
  std::optional<std::string> result;
  const auto now = [&]() { return result ? std::string_view(*result) : blob; };
  if (conversion.ident) take(replace_ident(blob, "Id: " + oid + " $", true), result);
  take(add_cr(conversion.line_ends, now()), result);
  if (!conversion.encoding.empty() && !now().empty())
    take(encode(conversion.encoding, now()), result);
  return result;
}

bool may_change_in_worktree(const Conversion& conversion, std::string_view blob) {
  return missing_cr(conversion.line_ends, blob) > 0 || !conversion.encoding.empty() ||
         (conversion.ident && blob.find("$Id") != std::string_view::npos);
}

std::optional<std::string> to_blob(const Conversion& conversion, std::string_view content,
                                   std::optional<std::string_view> committed) {
  std::optional<std::string> result;
  const auto now = [&]() { return result ? std::string_view(*result) : content; };
  if (!conversion.encoding.empty() && !content.empty())
    take(decode(conversion.encoding, content), result);
  take(drop_cr(conversion.line_ends, now(), committed), result);
  if (conversion.ident) take(replace_ident(now(), "Id$", false), result);
  return result;
}

}  // namespace moorage::repo_cache
