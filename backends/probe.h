// What this host can do, in sentences that a person can act on. Changes nothing: mounts are tried
// in a short-lived mount namespace and never touch the host's table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moorage::backends {

struct Check {
  std::string name;  // "kernel", "cgroup", "overlay"...
  bool ok = false;
  std::string text;  // the finding
  std::string hint;  // what to do; empty if ok
};

struct ProbeOptions {
  // Exists; tested for idmapped mounts and overlays. Empty: not created yet, so not tested.
  std::string store;
  std::string store_image{};  // the file it lies in, if any
  std::string docker_socket = "/var/run/docker.sock";
  uint32_t disk_first_id = 1'900'000'000;
  uint32_t sandbox_first_id = 1'000'000'000;
  uint32_t sandbox_id_slots = 4096;
};

// All checks, in reading order. Takes about 10 ms.
std::vector<Check> probe_host(const ProbeOptions& options);

// The checks that backend lxc requires. `directory` lies on the store's file system, or is empty.
std::vector<Check> check_container_host(const std::string& directory);

// The same for engine-made containers.
std::vector<Check> check_engine_host(const std::string& directory);

std::string kernel_release();
// The fault of a kernel with this name (uname(2)), and its fix; empty: usable.
std::optional<std::pair<std::string, std::string>> kernel_fault(const std::string& release,
                                                                const std::string& version);
std::string cgroup_kind();  // "v2", "v1-hybrid", "v1", "none"

}  // namespace moorage::backends
