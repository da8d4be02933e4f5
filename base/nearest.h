// The name that a mistyped one was probably meant to be.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

// By edit distance, at most a third of the name; also the right key in the wrong group, which is
// far by distance (the key is what follows the last dot): "store.socket" -> "api.socket".
std::optional<std::string> nearest(std::string_view name,
                                   const std::vector<std::string_view>& known);

}  // namespace moorage::base
