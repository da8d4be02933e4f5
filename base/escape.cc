// The escapes of log.h, without its library: small programs that never log need them for messages.
#include <cstdio>

#include "base/log.h"
#include "base/utf8.h"

namespace moorage::base {
namespace {

// Characters that break or reverse a line in some viewer: C1, U+2028-202E, U+2066-2069.
bool reshapes_line(std::string_view character) {
  return (character.size() == 2 && character[0] == '\xc2' && character < "\xc2\xa0") ||
         (character >= "\xe2\x80\xa8" && character <= "\xe2\x80\xae") ||
         (character >= "\xe2\x81\xa6" && character <= "\xe2\x81\xa9");
}

std::string_view short_escape(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    case '\r':
      return "\\r";
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    default:
      return {};
  }
}

void append_hex(std::string& line, std::string_view bytes) {
  for (const char byte : bytes) {
    char hex[8];
    snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    line += hex;
  }
}

enum class Quotes { escaped, kept };

std::string escape(std::string_view text, Quotes quotes) {
  std::string line;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length ? length : 1);
    text.remove_prefix(character.size());
    const auto first = static_cast<unsigned char>(character[0]);
    const std::string_view escape = short_escape(character[0]);
    const bool is_quote = first == '"' || first == '\\';
    if (!escape.empty() && !(is_quote && quotes == Quotes::kept)) {
      line += escape;
    } else if (length == 0 || first < 0x20 || first == 0x7f || reshapes_line(character)) {
      append_hex(line, character);
    } else {
      line += character;
    }
  }
  return line;
}

}  // namespace

std::string escape_for_line(std::string_view text) { return escape(text, Quotes::escaped); }

std::string escape_for_message(std::string_view text) { return escape(text, Quotes::kept); }

}  // namespace moorage::base
