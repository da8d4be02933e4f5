// A short question asked inside a running sandbox, as the agent's user: what git says of the
// agent's own repository, which the host must not read. The answer is a stranger's word: bounded,
// and only shown.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "workspace/active.h"

namespace moorage::workspace {

// Standard output, at most 4 KiB, of a command that exited 0 within the deadline; else nothing. No
// exec is recorded: it is not the user's command.
std::optional<std::string> ask_inside(const Running& running, const std::vector<std::string>& argv,
                                      std::chrono::milliseconds deadline);

// Commits of HEAD and of all branches that neither the base nor a branch of origin has; nothing if
// git cannot tell.
std::optional<uint64_t> count_unpushed(const Running& running, const std::string& base_commit,
                                       std::chrono::milliseconds deadline);

}  // namespace moorage::workspace
