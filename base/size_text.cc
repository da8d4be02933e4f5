#include "base/size_text.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>

namespace moorage::base {

std::string size_text(uint64_t bytes) {
  static constexpr char kSteps[] = "KMGTPE";
  if (bytes < 1024) return std::to_string(bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t step = 0;
  while (value >= 1023.5 && step + 2 < sizeof kSteps) {
    value /= 1024;
    ++step;
  }
  char text[32];
  const double tenths = value * 10;
  const bool whole = value >= 9.95 || std::lround(tenths) % 10 == 0;
  std::snprintf(text, sizeof text, whole ? "%.0f%c" : "%.1f%c", value, kSteps[step]);
  return text;
}

std::string exact_size_text(uint64_t bytes) {
  static constexpr char kSteps[] = "TGMK";
  for (size_t step = 0; step < 4; ++step) {
    const uint64_t unit = 1ULL << (40 - 10 * step);
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + kSteps[step];
  }
  return std::to_string(bytes);
}

std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

std::string count_text(uint64_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

}  // namespace moorage::base
