// All processes below one, by /proc, for a sandbox without a pid namespace of its own. Process 1 of
// such a sandbox is a subreaper, so none of its descendants escapes while it lives.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace moorage::outpost {

// Without those that have ended and only await their parent.
std::vector<pid_t> descendants(pid_t root);

// Ends them, also those that they start meanwhile. False: some are left at the deadline.
bool kill_descendants(pid_t root, std::chrono::milliseconds patience);

}  // namespace moorage::outpost
