// Bytes of any kind as text for JSON.
#pragma once

#include <string>
#include <string_view>

namespace moorage::base {

// UTF-8 with U+FFFD for each byte outside a valid sequence.
std::string lossy_utf8(std::string_view bytes);

}  // namespace moorage::base
