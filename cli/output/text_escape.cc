// The part of text.h about characters: escapes, widths, quoting, base64.
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "cli/output/text.h"
#include "cli/output/utf8.h"

namespace moorage::cli {
namespace {

void append_escape(std::string& out, const Utf8Step& step) {
  char text[16];
  if (step.valid && step.character == '\n') {
    out += "\\n";
    return;
  }
  if (step.valid && step.character == '\t') {
    out += "\\t";
    return;
  }
  if (step.valid && step.character == '\r') {
    out += "\\r";
    return;
  }
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

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string printable(std::string_view text) { return escape(text, false); }

std::string printable_lines(std::string_view text) { return escape(text, true); }

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_character(text);
    if (!step.valid) return false;
    text.remove_prefix(step.bytes);
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
    out += '\'';
    for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = (group << 8) | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= n ? kBase64[(group >> (18 - 6 * k)) & 63u] : '=';
    }
  }
  return out;
}

std::string base64_decode(std::string_view text) {
  std::string out;
  uint32_t group = 0;
  int bits = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (char c : text) {
    const size_t value = kBase64.find(c);
    if (value == std::string_view::npos) {
      throw Error(Code::corrupted, "the daemon sent invalid base64");
    }
    group = (group << 6) | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>((group >> bits) & 0xffu);
  }
  return out;
}

}  // namespace moorage::cli
