// The kinds of things that collection takes, least harm first (workspace/upkeep/gc_plan.h).
#pragma once

#include <array>
#include <string_view>

namespace moorage::workspace {

enum class GcRung { cache, base_tree, workspace, mirror };
inline constexpr std::array<std::string_view, 4> kGcRungNames{"cache", "base_tree", "workspace",
                                                              "mirror"};

}  // namespace moorage::workspace
