// A path below /workspace, as people type it.
#pragma once

#include <string>
#include <string_view>

namespace moorage::base {

// "./src/", "src/." and "/workspace/src" are "src"; "." and "/workspace" are "". Throws
// invalid_argument for another absolute path and for "..".
std::string workspace_path(std::string_view typed);

}  // namespace moorage::base
