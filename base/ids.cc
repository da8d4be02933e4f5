#include "base/ids.h"

#include <charconv>

namespace moorage::base {

std::string format_id(std::string_view prefix, int64_t value) {
  return std::string(prefix) + "_" + std::to_string(value);
}

// Only one spelling per id ("ws_7", never "ws_07"): ids become names on disk and in logs.
std::optional<int64_t> parse_id(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  if (text.size() < 2 || text[0] != '_' || text[1] < '1' || text[1] > '9') return std::nullopt;
  text.remove_prefix(1);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace moorage::base
