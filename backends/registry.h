// The only table of backends: a new backend is one file with a maker, and one line in registry.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/remote/options.h"

namespace moorage::backends {

struct BackendOptions {
  std::string name_prefix;       // "moorage-<store>-": `list` only returns such names
  std::string images_directory;  // <store>/images: skeletons and the copy of the warden
  std::string launch_program;    // absolute path of moorage-launch
  std::string warden_program;    // absolute path of moorage-warden
  std::string egress_program;    // absolute path of moorage-egress
  uint32_t egress_uid = 0;       // a user and group that nothing else on the host has
  bool allow_process = false;    // `process` isolates nothing, so it is opt-in
  uint32_t cpu_weight = 100;     // of all sandboxes together; a service of the host has 100
  uint64_t disk_rate_bytes = 0;  // each way, per sandbox on the store's disk; 0: no limit
  // A sandbox may create user and other namespaces, and mount in them.
  bool nested_namespaces = false;
  // Host-wide, until reboot: see favor_quick_moves in backends/cgroups/cgroups.h.
  bool favor_quick_cgroup_moves = true;
  std::string docker_socket = "/var/run/docker.sock";  // or Podman's
  std::string docker_runtime;                          // empty: the engine's default
  RemoteOptions remote;
};

std::vector<std::string> backend_names();  // of the table

// The backends of one daemon, each made once. Never fails because of the host: an unusable backend
// says so in capabilities().
class Registry {
 public:
  explicit Registry(const BackendOptions& options);

  Backend* find(const std::string& name);  // nullptr: no such backend
  Backend& get(const std::string& name);   // not_found, listing the available names
  std::vector<Backend*> all();
  std::vector<std::string> names() const;
  const std::string& prefix() const { return prefix_; }                 // of all sandbox names
  void put(const std::string& name, std::unique_ptr<Backend> backend);  // replaces one of that name

 private:
  const std::string prefix_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;
};

}  // namespace moorage::backends
