#include "cli/output/utf8.h"

#include <algorithm>
#include <iterator>

namespace moorage::cli {
namespace {

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

// The length that the first byte announces; 0 when it cannot start a character.
size_t sequence_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  if (first >= 0xf0 && first <= 0xf4) return 4;
  return 0;
}

bool well_formed(char32_t character, size_t bytes) {
  if (bytes == 3) return character >= 0x800 && !(character >= 0xd800 && character <= 0xdfff);
  if (bytes == 4) return character >= 0x10000 && character <= 0x10ffff;
  return true;
}

}  // namespace

Utf8Step next_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = sequence_bytes(first);
  Utf8Step bad{first, 1, false};
  if (bytes == 0 || text.size() < bytes) return bad;
  if (bytes == 1) return {first, 1, true};
  char32_t character = first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0u) != 0x80u) return bad;
    character = (character << 6) | (byte & 0x3fu);
  }
  if (!well_formed(character, bytes)) return bad;
  return {character, bytes, true};
}

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

}  // namespace moorage::cli
