// Attributes of our own for properties that tar cannot express: no file system has names like
// these, so they never clash with a file's own.
#pragma once

#include <string_view>

namespace moorage::packs {

inline constexpr std::string_view kTypeMark = "moorage.type";
inline constexpr std::string_view kSocketMark = "socket";
inline constexpr std::string_view kWhiteoutMark = "whiteout";
inline constexpr std::string_view kOpaqueMark = "moorage.opaque";

}  // namespace moorage::packs
