// The caller's name and address for commits, as git has them where he stands.
#pragma once

#include <optional>

#include "base/git_identity.h"

namespace moorage::cli {

// Absent: git here knows none, or not both, or what the daemon would refuse. The last answer is
// kept in ~/.local/state/moorage/git-author with the state of the files it came from: asking git
// takes as long as a short command in a sandbox.
std::optional<base::GitIdentity> git_author();

}  // namespace moorage::cli
