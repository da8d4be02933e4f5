// The author of a workspace's commits: the owner's own name and address, as git on this host has
// them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace moorage::workspace {

// GIT_AUTHOR_NAME and so on, from the owner's ~/.gitconfig, which git reads as the owner.
// Remembered for a minute. Empty if there is none.
std::map<std::string, std::string> git_author_of(uint32_t owner_uid);

}  // namespace moorage::workspace
