// Which bytes are text.
#pragma once

#include <string>
#include <string_view>

namespace moorage::base {

// Length of the well-formed UTF-8 character at the front (RFC 3629), or 0. Not for an empty text.
size_t utf8_length(std::string_view text);

// UTF-8 with U+FFFD for each byte outside a valid sequence: bytes of any kind as text for JSON.
std::string lossy_utf8(std::string_view bytes);

}  // namespace moorage::base
