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

// The best common ancestor of HEAD and upstream's `tip` (or, if the sandbox lacks that commit, the
// remote branch of that name): 40 hex digits; nullopt if git fails.
std::optional<std::string> common_ancestor(const LiveSandbox& running, const std::string& tip,
                                           const std::string& remote_branch,
                                           std::chrono::milliseconds deadline);

// Whether git in the sandbox has all these commits.
bool has_commits(const LiveSandbox& running, const std::vector<std::string>& commits,
                 std::chrono::milliseconds deadline);

// "<id> <name>" lines of the workspace's tags and of its branches of origin: at most 8 MiB.
// nullopt if git fails or has more.
std::optional<std::string> remote_references(const LiveSandbox& running,
                                             std::chrono::milliseconds deadline);
// Commands of git-update-ref(1) --stdin, each with its line end; many at once, not all together.
// Throws conflict with git's words.
void update_references(const LiveSandbox& running, const std::vector<std::string>& commands,
                       std::chrono::milliseconds deadline);
// Makes origin/HEAD a symbolic reference to this one.
void point_remote_head(const LiveSandbox& running, const std::string& target,
                       std::chrono::milliseconds deadline);

// The commits from `old_id` (without it; zeros: only the new one) to `new_id`, newest first, as
// git-cat-file(1) --batch writes them: from the repository that a program inside pushes from, else
// from the workspace's. Empty if git has no answer; cut after kMaxCommitBytes.
std::string commits_between(const LiveSandbox& running, const std::string& old_id,
                            const std::string& new_id, std::chrono::milliseconds deadline);
inline constexpr size_t kMaxCommitBytes = 4 << 20;

}  // namespace moorage::workspace
