// The processes of one exec, in a cgroup made by the host: it contains everything the command
// starts, including daemonised children. The child joins before its execve by writing "0" to the
// join descriptors (opened by host root: cgroup checks the opener's rights, so no process inside
// needs any). The unified hierarchy does the killing on hybrid hosts too; the v1 memory hierarchy
// is joined in addition, to count OOM kills per exec. Only joining creates the cgroup; for
// all other calls an ended exec has no processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::backends {

class ExecGroup {
 public:
  virtual ~ExecGroup() = default;
  virtual std::vector<Fd> join_fds() = 0;  // write "0" to each to join; idempotent
  // After join_fds(): write "1" to kill all (cgroup.kill). Empty: not available.
  virtual Fd kill_fd() = 0;
  virtual void kill() = 0;
  virtual void set_frozen(bool) {}   // beside a freeze of the whole sandbox; if possible
  virtual uint64_t oom_kills() = 0;  // processes of the group killed by the OOM killer
  // Forks refused to all commands of the sandbox by the process limit, since its start.
  virtual uint64_t refused_forks() = 0;
  virtual uint64_t cpu_usec() { return 0; }  // used by its processes; 0: unknown
  virtual uint64_t kernel_id() { return 0; }  // as sock_diag(7) reports it; 0: none yet
  virtual bool empty() = 0;
  virtual std::vector<pid_t> members(size_t at_most) = 0;  // host pids
  virtual uint64_t processes() = 0;                        // currently in it
  virtual void remove() = 0;                               // when empty; missing is fine
};

}  // namespace moorage::backends
