// A keeper stands between the warden and one command without its own cgroup. It is a subreaper: all
// descendants of the command stay below the keeper, however often they fork or change session, so
// that all can be found and killed. It reports how the command ended, reaps its remaining children,
// and exits with the last descendant. SIGUSR1 makes it kill them all.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

namespace moorage::warden {

struct KeeperReport {
  int status = 0;  // as from wait4
  rusage usage{};
};

// Runs in the keeper's process, after the command was forked. Keeps no descriptor except report_fd.
[[noreturn]] void run_keeper(pid_t command, int report_fd);
// Call between the fork of the keeper and the fork of the command.
void become_keeper();

}  // namespace moorage::warden
