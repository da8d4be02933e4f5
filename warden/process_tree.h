// The descendants of a process, found in /proc by parent. A process that forks while we look may be
// missed: callers look again until none is left.
#pragma once

#include <sys/types.h>

#include <vector>

namespace moorage::warden {

std::vector<pid_t> descendants(pid_t root);  // without root; parents before their children
// SIGKILL to every descendant (not to root), again until a look finds nobody new.
void kill_descendants(pid_t root);

}  // namespace moorage::warden
