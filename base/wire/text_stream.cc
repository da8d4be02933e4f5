#include "base/wire/text_stream.h"

#include <algorithm>
#include <array>
#include <boost/beast/core/detail/base64.hpp>
#include <charconv>

#include "base/error.h"

namespace moorage::base {
namespace {

namespace base64 = boost::beast::detail::base64;

constexpr size_t kOffsetDigits = 12;
constexpr size_t kHead = 1 + kOffsetDigits + 1;
constexpr size_t kMaxLine = kHead + kTextLineBytes * 2;

bool is_mark(char byte) { return byte == 1 || byte == 2 || byte == '\r'; }

}  // namespace

std::string base64_text(std::string_view bytes) {
  std::string text(base64::encoded_size(bytes.size()), '\0');
  text.resize(base64::encode(text.data(), bytes.data(), bytes.size()));
  return text;
}

bool append_base64(std::string_view text, std::string& bytes) {
  if (text.size() % 4 != 0) return false;
  const size_t before = bytes.size();
  bytes.resize(before + base64::decoded_size(text.size()));
  const auto [written, read] = base64::decode(bytes.data() + before, text.data(), text.size());
  bytes.resize(before + written);
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  return written == text.size() / 4 * 3 - padding;
}

std::string TextEncoder::head() const {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), offset_, 16).ptr;
  const std::string_view number(digits.data(), static_cast<size_t>(end - digits.data()));
  std::string text(1, static_cast<char>(direction_));
  return text.append(kOffsetDigits - std::min(kOffsetDigits, number.size()), '0').append(number);
}

std::string TextEncoder::encode(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kTextLineBytes);
    text.append(head()).append(":").append(base64_text(piece)).append("\n");
    offset_ += piece.size();
    bytes.remove_prefix(piece.size());
  }
  return text;
}

std::string TextEncoder::end() const { return head() + ".\n"; }

void TextDecoder::decode(std::string_view text, std::string& bytes) {
  for (const char byte : text) {
    if (byte == '\n') {
      if (!skipping_) take_line(line_, bytes);
      skipping_ = false;
      line_.clear();
    } else if (line_.size() >= kMaxLine) {
      skipping_ = true;
    } else if (!is_mark(byte)) {
      line_ += byte;
    }
  }
}

void TextDecoder::take_line(std::string_view line, std::string& bytes) {
  if (line.size() < kHead || line[0] != static_cast<char>(direction_)) return;
  uint64_t offset = 0;
  const char* digits_end = line.data() + 1 + kOffsetDigits;
  const auto [end, error] = std::from_chars(line.data() + 1, digits_end, offset, 16);
  const char kind = line[kHead - 1];
  if (error != std::errc() || end != digits_end || (kind != ':' && kind != '.')) return;
  if (ended_) throw Error(Code::corrupted, "a text stream goes on after its end");
  if (offset != offset_) {
    throw Error(Code::corrupted, "a text stream lost or repeated bytes: it goes on at " +
                                     std::to_string(offset) + " instead of " +
                                     std::to_string(offset_));
  }
  const size_t before = bytes.size();
  if (kind == '.') {
    ended_ = true;
  } else if (!append_base64(line.substr(kHead), bytes)) {
    throw Error(Code::corrupted, "a text stream has a line with invalid base64");
  }
  offset_ += bytes.size() - before;
}

}  // namespace moorage::base
