// Asks a short question inside a running sandbox, as the agent's user: for example git, about the
// agent's own repository, which the host must not read. The answer is untrusted: bounded, and only
// shown.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

// Commits on HEAD and all branches that neither the known ones nor a branch of a remote reach;
// nullopt if git fails.
std::optional<uint64_t> count_unpushed(const LiveSandbox& running,
                                       const std::vector<std::string>& known,
                                       std::chrono::milliseconds deadline);

// The commits from `old_id` (without it; zeros: only the new one) to `new_id`, newest first, as
// git-cat-file(1) --batch writes them: from the repository that a program inside pushes from, else
// from the workspace's. Empty if git has no answer; cut after kMaxCommitBytes.
std::string commits_between(const LiveSandbox& running, const std::string& old_id,
                            const std::string& new_id, std::chrono::milliseconds deadline);
inline constexpr size_t kMaxCommitBytes = 4 << 20;

}  // namespace moorage::workspace
