// The name that a mistyped one probably meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

// By edit distance, at most a third of the name. Also finds the right key in the wrong group, whose
// distance is large (the key follows the last dot): "store.socket" -> "api.socket".
std::optional<std::string> nearest_spelling(std::string_view name,
                                            const std::vector<std::string_view>& known);

}  // namespace moorage::base
