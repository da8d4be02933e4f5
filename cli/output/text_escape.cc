// The part of text.h about characters: escapes, widths, quoting, base64.
#include <algorithm>
#include <boost/beast/core/detail/base64.hpp>
#include <cstdio>
#include <iterator>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

namespace base64 = boost::beast::detail::base64;

// The first character of untrusted UTF-8, or one bad byte.
struct Utf8Step {
  char32_t character = 0;
  size_t bytes = 1;
  bool valid = false;  // false: `bytes` is 1 and `character` is the byte
};

Utf8Step next_character(std::string_view text) {  // text must not be empty
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = base::utf8_length(text);
  if (bytes <= 1) return {first, 1, bytes == 1};
  char32_t character = first & (0xffu >> (bytes + 1));
  for (const char c : text.substr(1, bytes - 1)) character = character << 6 | (c & 0x3f);
  return {character, bytes, true};
}

struct Range {
  char32_t first;
  char32_t last;
};

template <size_t N>
bool in_ranges(const Range (&ranges)[N], char32_t character) {
  return std::any_of(std::begin(ranges), std::end(ranges), [character](const Range& range) {
    return character >= range.first && character <= range.last;
  });
}

// Invisible characters that change how other text is shown: controls, bidi marks, embeddings and
// isolates, zero-width characters, line separators, tags.
bool is_hidden_control(char32_t character) {
  static constexpr Range kHidden[] = {{0x0, 0x1f},      {0x7f, 0x9f},      {0xad, 0xad},
                                      {0x61c, 0x61c},   {0x180e, 0x180e},  {0x200b, 0x200f},
                                      {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                                      {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  return in_ranges(kHidden, character);
}

bool is_wide(char32_t character) {
  static constexpr Range kWide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},  {0x3041, 0xa4cf},
                                    {0xac00, 0xd7a3},   {0xf900, 0xfaff},  {0xfe30, 0xfe6f},
                                    {0xff00, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f},
                                    {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
  return in_ranges(kWide, character);
}

bool is_combining(char32_t character) {
  static constexpr Range kCombining[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},
                                         {0x1ab0, 0x1aff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f},
                                         {0xfe20, 0xfe2f}};
  return in_ranges(kCombining, character);
}

void append_escape(std::string& out, const Utf8Step& step) {
  for (const auto& [character, escape] : {std::pair('\n', "\\n"), {'\t', "\\t"}, {'\r', "\\r"}}) {
    if (step.character == static_cast<char32_t>(character)) {
      out += escape;
      return;
    }
  }
  char text[16];
  const auto number = static_cast<unsigned>(step.character);
  std::snprintf(text, sizeof text, number < 0x80 || !step.valid ? "\\x%02x" : "\\u{%04x}", number);
  out += text;
}

std::string escape(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = next_character(text);
    const bool kept = keep_lines && (step.character == '\n' || step.character == '\t');
    if (step.valid && (kept || !is_hidden_control(step.character))) {
      out.append(text.substr(0, step.bytes));
    } else {
      append_escape(out, step);
    }
    text.remove_prefix(step.bytes);
  }
  return out;
}

size_t character_width(char32_t character) {
  if (is_combining(character)) return 0;
  return is_wide(character) ? 2 : 1;
}

}  // namespace

std::string printable(std::string_view text) { return escape(text, false); }

std::string printable_lines(std::string_view text) { return escape(text, true); }

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = base::utf8_length(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Utf8Step step = next_character(text);
    width += step.valid ? character_width(step.character) : 1;
    text.remove_prefix(step.bytes);
  }
  return width;
}

std::string shorten(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::string out;
  size_t used = 0;
  while (!text.empty()) {
    const Utf8Step step = next_character(text);
    const size_t columns = character_width(step.character);
    if (used + columns > width - 1) break;
    used += columns;
    out.append(text.substr(0, step.bytes));
    text.remove_prefix(step.bytes);
  }
  return out + "…";
}

// $'...' of bash, zsh and ksh.
std::string escaped_word(std::string_view word) {
  std::string out = "$'";
  for (const char c : word) {
    if (c == '\'' || c == '\\') {
      out += {'\\', c};
    } else if (c >= ' ' && c <= '~') {
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      char octal[8];  // always three digits, so a digit may follow
      std::snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned char>(c));
      out += octal;
    }
  }
  return out + "'";
}

std::string join_command(const std::vector<std::string>& argv) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+";
  std::string out;
  for (const std::string& word : argv) {
    if (!out.empty()) out += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      out += word;
      continue;
    }
    if (printable(word) != word) {  // it would be shown with escapes, which '' do not read
      out += escaped_word(word);
      continue;
    }
    out += '\'';
    for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

std::string base64_encode(std::string_view bytes) {
  std::string text(base64::encoded_size(bytes.size()), '\0');
  text.resize(base64::encode(text.data(), bytes.data(), bytes.size()));
  return text;
}

std::string base64_decode(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes(base64::decoded_size(text.size()) + 3, '\0');
  const auto [written, read] = base64::decode(bytes.data(), text.data(), text.size());
  if (read != text.size()) throw Error(Code::corrupted, "the daemon sent invalid base64");
  bytes.resize(written);
  return bytes;
}

}  // namespace moorage::cli
