// A keeper stands between the warden and one command that no cgroup holds together. It is a
// subreaper: whatever the command starts, however often it forks and changes its session, stays
// below the keeper, so that all of it can be found and killed. It reports how the command ended,
// reaps what is left to it, and exits with the last descendant. SIGUSR1 makes it kill them all.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

namespace moorage::warden {

struct KeeperReport {
  int status = 0;  // as from wait4
  rusage usage{};
};

// In the keeper's process, after the command was forked. No other descriptor than report_fd is
// kept.
[[noreturn]] void run_keeper(pid_t command, int report_fd);
// Between fork of the keeper and fork of the command.
void become_keeper();

}  // namespace moorage::warden
