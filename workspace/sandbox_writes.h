// What the commands of a sandbox have done so far, as the kernel counts it: pages of files made
// dirty (written_bytes.h), and processor time, which tells who slept all the while.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/exec_group.h"
#include "base/ids.h"
#include "workspace/active.h"

namespace moorage::workspace {

struct SandboxWrites {
  struct Done {
    uint64_t bytes = 0;
    uint64_t cpu_usec = 0;
  };
  uint64_t all = 0;                        // bytes, by the sandbox since it began
  uint64_t ended = 0;                      // of that, by processes that ended
  uint64_t cpu_usec = 0;                   // of the sandbox
  std::map<base::ExecId, Done> by_exec{};  // those that have processes
};

SandboxWrites writes_in(const Running& running);
uint64_t bytes_written_in(const Running& running);  // the quicker part of it

// What these commands started stands still while it lives.
class FrozenExecs {
 public:
  FrozenExecs(const Running& running, const SandboxWrites& writes);
  ~FrozenExecs();
  FrozenExecs(const FrozenExecs&) = delete;
  FrozenExecs& operator=(const FrozenExecs&) = delete;

 private:
  std::vector<std::unique_ptr<backends::ExecGroup>> groups_;
};

}  // namespace moorage::workspace
