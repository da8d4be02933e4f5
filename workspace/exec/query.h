// Asks a short question inside a running sandbox, as the agent's user: for example git, about the
// agent's own repository, which the host must not read. The answer is untrusted: bounded, and only
// shown.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

// Commits on HEAD and all branches that neither the base nor a branch of origin has; nullopt if git
// fails.
std::optional<uint64_t> count_unpushed(const LiveSandbox& running, const std::string& base_commit,
                                       std::chrono::milliseconds deadline);

}  // namespace moorage::workspace
