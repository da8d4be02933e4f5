// What a directory has and git does not keep, so that it does not come along into a workspace:
// empty directories, pipes, sockets and devices, and modes other than 644 and 755 (or those of a
// umask of 002). Ignored entries do not count.
#pragma once

#include <string>
#include <vector>

#include "cli/local/git_calls.h"

namespace moorage::cli {

// files: paths below `top` that come along. in_tree: a call of git whose index has them all.
// Returns sentences for the user.
std::vector<std::string> unkept(const std::string& top, const std::vector<std::string>& files,
                                const GitCall& in_tree);

// "a, b, c and 4 more"
std::string some_of(const std::vector<std::string>& names);

}  // namespace moorage::cli
