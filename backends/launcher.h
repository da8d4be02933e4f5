// Makes the inside of a sandbox and starts its warden: runs moorage-launch, then the bootstrap. The
// warden dials one socket that is bound into the sandbox; its peer credentials must be those of the
// process 1 that was just made; it is handed a listening socket whose path exists on the host only;
// then the first socket is removed. So nothing inside ever knows a way to the host, and what
// answers at `kWardenSocket` is the warden.
//
// Where an engine makes the container, the warden is its process 1 and waits for that answer;
// meanwhile moorage-launch furnishes the container from outside, so that nothing that the engine is
// told leads to the workspace.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/envd_client.h"
#include "base/process.h"

namespace moorage::backends {

inline constexpr const char* kWardenSocket = "warden.sock";        // in spec.directory
inline constexpr const char* kBootstrapSocket = "bootstrap.sock";  // there, until it has started

struct LaunchPlan {
  std::string mode;     // "lxc", "process" or "furnish"
  std::string program;  // moorage-launch
  std::string warden;   // the copy that is shown inside
  std::string rootfs;   // the skeleton; empty for "process"
  std::string cgroup;   // the sandbox's group in the unified hierarchy
  bool nested_namespaces = false;
  std::vector<std::string> join_files;  // see SandboxCgroup::join_files

  // Of a container that an engine makes ("furnish"): starts it, and returns what the engine calls
  // its process 1; takes that into the sandbox's group, once it was seen to be the warden, and says
  // which files of the host are shown where.
  std::function<pid_t(std::chrono::milliseconds)> start_container;
  using Files = std::vector<std::pair<std::string, std::string>>;
  std::function<Files(const base::ProcessIdentity&)> take_over;
  bool maps_ids = true;   // it has a user namespace
  bool host_usr = true;   // its image is `host`
  uint32_t owner_id = 0;  // host id that its private directories belong to
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
