// A cursor over untrusted UTF-8: each step is one valid character or one bad byte.
#pragma once

#include <cstddef>
#include <string_view>

namespace moorage::cli {

struct Utf8Step {
  char32_t character = 0;
  size_t bytes = 1;
  bool valid = false;  // false: `bytes` is 1 and `character` is the byte
};
// text must not be empty. Overlong forms, surrogates and values above U+10FFFF are not valid.
Utf8Step next_character(std::string_view text);

// True for invisible characters that change how other text is shown: controls, bidi marks,
// embeddings and isolates, zero-width characters, line separators, tags.
bool is_hidden_control(char32_t character);
bool is_wide(char32_t character);
bool is_combining(char32_t character);

}  // namespace moorage::cli
