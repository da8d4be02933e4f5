// Makes the inside of a sandbox and starts its warden: runs moorage-launch, then the bootstrap. The
// warden connects to a socket bound into the sandbox; its peer credentials must match the new
// process 1; it receives a listening socket whose path exists only on the host; then the first
// socket is removed. So no process inside ever has a path to the host, and only the warden answers
// at `kWardenSocket`.
//
// If an engine makes the container, the warden is its process 1 and waits for that answer;
// meanwhile moorage-launch furnishes the container from outside, so that the engine's data never
// leads to the workspace.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/envd_client.h"
#include "backends/launch/request.h"
#include "base/os/process.h"

namespace moorage::backends {

inline constexpr const char* kWardenSocket = "warden.sock";        // in spec.directory
inline constexpr const char* kBootstrapSocket = "bootstrap.sock";  // exists until startup is done

// The request to moorage-launch, except what the spec decides: `launch` adds that.
struct LaunchPlan : launch::Request {
  std::string program;  // moorage-launch

  // For a container that an engine makes ("furnish"): starts it and returns the pid the engine
  // reports; moves that process into the sandbox's group once it is verified to be the warden, and
  // returns what is known only then.
  std::function<pid_t(std::chrono::milliseconds)> start_container;
  using Files = std::vector<std::pair<std::string, std::string>>;
  struct Container {
    base::ProcessIdentity init;
    Files files;  // of the host, and where to show them
    Files cgroups;
    Files cgroup_links;
  };
  std::function<Container(const base::ProcessIdentity&)> take_over;
};

struct Launched {
  base::ProcessIdentity init;
  WardenInfo warden;
};

// Returns when the warden answers, or throws; then the caller destroys the remains. Everything
// happens within spec.deadline.
Launched launch(const SandboxSpec& spec, const LaunchPlan& plan);

// A private copy of a program that no one can read: the kernel makes a process running it
// undumpable, so that not even root inside can trace the warden (design section 7). Made once per
// state of `program`; other copies are removed: processes running them keep them open.
std::string copy_program(const std::string& program, const std::string& directory, mode_t mode);

}  // namespace moorage::backends
