#include "base/utf8.h"

namespace moorage::base {

// Keeps a byte if it belongs to a shortest-form sequence of a scalar value (RFC 3629).
std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const auto first = static_cast<unsigned char>(bytes[i]);
    const size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    bool valid = first < 0x80 || (first >= 0xC2 && first <= 0xF4);
    valid = valid && i + length <= bytes.size();
    for (size_t k = 1; valid && k < length; ++k) {
      const auto next = static_cast<unsigned char>(bytes[i + k]);
      unsigned char low = 0x80;
      unsigned char high = 0xBF;
      if (k == 1 && first == 0xE0) low = 0xA0;
      if (k == 1 && first == 0xED) high = 0x9F;
      if (k == 1 && first == 0xF0) low = 0x90;
      if (k == 1 && first == 0xF4) high = 0x8F;
      valid = next >= low && next <= high;
    }
    if (valid) {
      out.append(bytes.substr(i, length));
      i += length;
    } else {
      out.append("\xEF\xBF\xBD");
      ++i;
    }
  }
  return out;
}

}  // namespace moorage::base
