// The one table of backends: a new backend is one file with a maker, and one line in registry.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace moorage::backends {

struct BackendOptions {
  std::string name_prefix;       // "moorage-<store>-": all that `list` finds begins with it
  std::string images_directory;  // <store>/images: skeletons and the copy of the warden
  std::string launch_program;    // absolute path of moorage-launch
  std::string warden_program;    // absolute path of moorage-warden
  bool allow_process = false;    // `process` isolates nothing, so it must be asked for
  uint32_t cpu_weight = 100;     // of all sandboxes together; a service of the host has 100
  uint64_t disk_rate_bytes = 0;  // each way, of one sandbox on the store's disk; 0: no limit
  // A sandbox may make user and other namespaces, and mount in them.
  bool nested_namespaces = false;
  // Host-wide, until reboot: see favor_quick_moves in cgroups.h.
  bool favor_quick_cgroup_moves = true;
  std::string docker_socket = "/var/run/docker.sock";  // or that of Podman
  std::string docker_runtime;                          // empty: the engine's own choice
};

// The backends of one daemon, each made once. `fake` is not among them: tests make it themselves.
class Registry {
 public:
  explicit Registry(const BackendOptions& options);

  Backend* find(const std::string& name);  // nullptr: no such backend
  Backend& get(const std::string& name);   // not_found, with the names there are
  std::vector<Backend*> all();
  std::vector<std::string> names() const;
  const std::string& prefix() const { return prefix_; }  // of the names of all sandboxes
  void put(const std::string& name, std::unique_ptr<Backend> backend);  // replaces one of that name

 private:
  const std::string prefix_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;
};

std::vector<std::string> backend_names();
// Never fails because of the host: an unusable backend says so in capabilities(). not_found: no
// such name.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options);

}  // namespace moorage::backends
