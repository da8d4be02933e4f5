// Work done by the commands of a sandbox, as the kernel counts it: dirtied pages of files
// (base/os/written_bytes.h), and processor time, which shows the ones that only slept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/cgroups/exec_group.h"
#include "base/ids.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

struct SandboxWrites {
  struct Done {
    uint64_t bytes = 0;
    uint64_t cpu_usec = 0;
  };
  uint64_t all = 0;                        // bytes, by the sandbox since it began
  uint64_t ended = 0;                      // part of it by ended processes
  uint64_t cpu_usec = 0;                   // of the sandbox
  std::map<base::ExecId, Done> by_exec{};  // only execs with processes
};

SandboxWrites writes_in(const LiveSandbox& running);
uint64_t bytes_written_in(const LiveSandbox& running);  // only `all`, which is quicker

// Freezes the processes of these commands while it lives.
class FrozenExecs {
 public:
  FrozenExecs(const LiveSandbox& running, const SandboxWrites& writes);
  ~FrozenExecs();
  FrozenExecs(const FrozenExecs&) = delete;
  FrozenExecs& operator=(const FrozenExecs&) = delete;

 private:
  std::vector<std::unique_ptr<backends::ExecGroup>> groups_;
};

}  // namespace moorage::workspace
