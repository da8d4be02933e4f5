// A byte stream carried as lines of text, for a provider whose streams are not safe for bytes:
// Daytona's sessions take input as a JSON string, read output line by line and put bytes 01 and 02
// between as marks. A line is
//
//   DIRECTION OFFSET ':' BASE64 '\n'    bytes; OFFSET: of the first one in the stream, 12 hex
//   digits DIRECTION OFFSET '.' '\n'           the end of the stream, at that offset
//
// DIRECTION is '<' towards the program there and '>' from it, so an echo of the input is not taken
// for output. Lines that look different (a shell's warnings) are skipped, and bytes 01 and 02 are
// left out; a lost, doubled or reordered line shows at the next offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moorage::base {

enum class TextDirection : char { to_program = '<', from_program = '>' };

inline constexpr size_t kTextLineBytes = 24 << 10;  // of bytes in a line: 32 KiB of text

std::string base64_text(std::string_view bytes);  // RFC 4648, with padding
// Appends the bytes; false: not base64, or without padding.
bool append_base64(std::string_view text, std::string& bytes);

class TextEncoder {
 public:
  explicit TextEncoder(TextDirection direction) : direction_(direction) {}
  std::string encode(std::string_view bytes);  // whole lines; empty for no bytes
  std::string end() const;

 private:
  std::string head() const;
  TextDirection direction_;
  uint64_t offset_ = 0;
};

class TextDecoder {
 public:
  explicit TextDecoder(TextDirection direction) : direction_(direction) {}
  // Appends to `bytes` what whole lines carry; at most `text.size()` and a line. Throws corrupted
  // for a line at the wrong offset, or one after the end.
  void decode(std::string_view text, std::string& bytes);
  bool ended() const { return ended_; }  // an end line came: the stream is whole

 private:
  void take_line(std::string_view line, std::string& bytes);

  TextDirection direction_;
  uint64_t offset_ = 0;
  bool ended_ = false;
  bool skipping_ = false;  // a line longer than any that an encoder makes
  std::string line_;
};

}  // namespace moorage::base
