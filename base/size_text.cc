#include "base/size_text.h"

#include <algorithm>
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

namespace {

// "", "B", "K", "KB", "KiB"... as a number of bits to shift by; nullopt: no unit.
std::optional<unsigned> unit_of(std::string_view text) {
  if (text.empty() || text == "B" || text == "b") return 0;
  const size_t step = std::string_view("KMGT").find(static_cast<char>(text[0] & ~0x20));
  const std::string_view rest = text.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib";
  if (step == std::string_view::npos || !known) return std::nullopt;
  return static_cast<unsigned>(10 * (step + 1));
}

}  // namespace

std::optional<uint64_t> parse_size(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  std::string_view rest = text.substr(digits);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const auto shift = unit_of(rest);
  if (number.empty() || !shift) return std::nullopt;
  const char* end = number.data() + number.size();
  if (number.find('.') == std::string_view::npos) {
    uint64_t whole = 0;
    const auto [at, failure] = std::from_chars(number.data(), end, whole);
    const bool fits = failure == std::errc() && whole <= UINT64_MAX >> *shift;
    return fits ? whole << *shift : UINT64_MAX;
  }
  double value = 0;
  const auto [at, failure] = std::from_chars(number.data(), end, value, std::chars_format::fixed);
  if (failure != std::errc() || at != end) return std::nullopt;
  value *= static_cast<double>(uint64_t{1} << *shift);
  return value < 1e19 ? static_cast<uint64_t>(value) : UINT64_MAX;
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
  std::string text = std::to_string(n) + " " + std::string(noun);
  if (n == 1) return text;
  if (noun.ends_with('y')) return text.substr(0, text.size() - 1) + "ies";
  return text + (noun.ends_with('x') ? "es" : "s");
}

std::string verb_text(uint64_t n, std::string_view verb) {
  if (n != 1) return std::string(verb);
  if (verb == "were") return "was";
  return verb == "have" ? "has" : std::string(verb) + "s";
}

}  // namespace moorage::base
