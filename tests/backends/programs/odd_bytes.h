// Bytes without a pattern, the same for writer and checker.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::tests {

inline std::string odd_bytes(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  uint32_t state = seed;
  for (char& c : bytes) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

inline std::string every_byte() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

}  // namespace moorage::tests
