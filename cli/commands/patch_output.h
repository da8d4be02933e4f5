// Prints a patch. It is bytes and printed unchanged, except on a terminal: there control characters
// are escaped. Its lines "# moorage: {JSON}" list the files that it lacks; each becomes a line on
// standard error that says why, and how to get the file.
#pragma once

#include <string>

#include "cli/client/context.h"

namespace moorage::cli {

// A patch does not give each changed file, byte for byte.
inline constexpr int kPatchIsPartial = 3;

// Returns the exit code: 0 or kPatchIsPartial. `name` is the workspace that has the files.
// `if_empty` is noted if there is none.
int print_patch(Context& context, const std::string& target, const std::string& name,
                const std::string& if_empty = {});

// Why no patch of this workspace has the path: "name" (git refuses it) or "nested" (a repository).
std::string left_out_text(const std::string& path, const std::string& why, const std::string& name);

}  // namespace moorage::cli
