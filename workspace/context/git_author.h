// The author of commits in a sandbox, as environment variables of git.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/git_identity.h"

namespace moorage::workspace {

// GIT_AUTHOR_NAME and so on; an empty part has none.
std::map<std::string, std::string> author_variables(const base::GitIdentity& author);

// From the user's ~/.gitconfig, which git reads as this user. Remembered for a minute. Empty if
// there is none, or it is not an identity (git_identity.h).
std::map<std::string, std::string> git_author_of(uint32_t uid);

}  // namespace moorage::workspace
