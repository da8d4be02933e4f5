// Takes a text apart at a mark: lines, paths, lists.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace moorage::base {

// Removes and returns the text before the first mark, and drops the mark. Without one: all of it.
inline std::string_view take_until(std::string_view& text, char mark) {
  const std::string_view part = text.substr(0, text.find(mark));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
}

// One part more than there are marks; parts may be empty.
inline std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size(); at += parts.back().size() + 1)
    parts.push_back(text.substr(at, text.find(mark, at) - at));
  return parts;
}

}  // namespace moorage::base
