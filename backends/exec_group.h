// The processes of one exec, held together from outside by a cgroup that the host made: everything
// the command starts is in it, daemonised children too. The child joins before its execve by
// writing "0" to the join descriptors (opened by host root: cgroup checks the opener's rights, so
// nothing inside needs any). The unified hierarchy is used for kill also on hybrid hosts; the
// memory hierarchy of v1 is joined in addition, so that OOM kills are counted per exec. Only who
// joins makes the cgroup: to all others an exec that has ended has no processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace moorage::backends {

class ExecGroup {
 public:
  virtual ~ExecGroup() = default;
  virtual std::vector<base::Fd> join_fds() = 0;  // write "0" to each to join; idempotent
  // After join_fds(): write "1" to kill all (cgroup.kill); none: empty
  virtual base::Fd kill_fd() = 0;
  virtual void kill() = 0;
  virtual void set_frozen(bool) {}   // beside a freeze of the whole sandbox; where it can be
  virtual uint64_t oom_kills() = 0;  // processes of the group that the OOM killer took
  // Forks that the limit of processes refused to all commands of the sandbox, since its start.
  virtual uint64_t refused_forks() = 0;
  virtual uint64_t cpu_usec() { return 0; }  // used by what is in it; 0: not known
  virtual bool empty() = 0;
  virtual std::vector<pid_t> members(size_t at_most) = 0;  // host pids
  virtual uint64_t processes() = 0;                        // in it now
  virtual void remove() = 0;                               // once empty; missing is fine
};

}  // namespace moorage::backends
