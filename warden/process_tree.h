// The descendants of a process, found in /proc by parent. A process that forks during the walk may
// be missed: callers repeat until none is left.
#pragma once

#include <sys/types.h>

#include <vector>

namespace moorage::warden {

std::vector<pid_t> descendants(pid_t root);  // without root; parents before their children
// SIGKILL to every descendant (not to root), repeated until no new one is found.
void kill_descendants(pid_t root);

}  // namespace moorage::warden
