// A subreaper (prctl(2)) stands between the warden and one command without its own cgroup: all
// descendants of the command stay below it, however often they fork or change session, so that all
// can be found and killed. It reports how the command ended, reaps its remaining children, and
// exits with the last descendant. SIGUSR1 makes it kill them all. So does a fork bomb that the
// command leaves behind, which would block all later commands.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>

namespace moorage::warden {

struct SubreaperReport {
  int status = 0;  // as from wait4
  rusage usage{};
};

// Runs in the subreaper's process, after the command was forked. Keeps no descriptor except
// report_fd. More processes than `most_left`, once the command has ended, are a bomb; 0: none are.
[[noreturn]] void run_subreaper(pid_t command, int report_fd, size_t most_left);
// Call between the fork of the subreaper and the fork of the command.
void become_subreaper();

}  // namespace moorage::warden
