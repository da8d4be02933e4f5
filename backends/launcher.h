// Makes the inside of a sandbox and starts its warden: runs moorage-launch, then the bootstrap. The
// warden dials one socket that is bound into the sandbox; its peer credentials must be those of the
// process 1 that was just made; it is handed a listening socket whose path exists on the host only;
// then the first socket is removed. So nothing inside ever knows a way to the host, and what
// answers at `kWardenSocket` is the warden.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/envd_client.h"
#include "base/process.h"

namespace moorage::backends {

inline constexpr const char* kWardenSocket = "warden.sock";  // in spec.directory

struct LaunchPlan {
  std::string mode;     // "lxc" or "process"
  std::string program;  // moorage-launch
  std::string warden;   // the copy that is shown inside
  std::string rootfs;   // the skeleton; empty for "process"
  std::string cgroup;   // the sandbox's group in the unified hierarchy
  bool nested_namespaces = false;
  std::vector<std::string> join_files;  // see SandboxCgroup::join_files
};

struct Launched {
  base::ProcessIdentity init;
  WardenInfo warden;
};

// Returns when the warden answers, or throws; then the caller destroys what there is. Everything
// within spec.deadline.
Launched launch(const SandboxSpec& spec, const LaunchPlan& plan);

// A private copy of a program that cannot be read, by anyone: the kernel makes a process that runs
// the warden's undumpable, so that not even root inside can trace it (design section 7). Made once
// for each state of `program`; copies of other states are removed: what runs them has them open.
std::string copy_program(const std::string& program, const std::string& directory, mode_t mode);

}  // namespace moorage::backends
