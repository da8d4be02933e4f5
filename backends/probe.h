// What this host can do, in sentences that a person can act on. Nothing is changed; the mounts that
// are tried are tried in a mount namespace of a moment, and never touch the host's table.
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
  std::string text;  // what was found
  std::string hint;  // what to do; empty if ok
};

struct ProbeOptions {
  // Exists; tried for idmapped mounts and overlays. Empty: not there yet, so nothing is said of it.
  std::string store;
  std::string store_image{};  // the file that it lies in, if it does
  std::string docker_socket = "/var/run/docker.sock";
  uint32_t disk_first_id = 1'900'000'000;
  uint32_t sandbox_first_id = 1'000'000'000;
  uint32_t sandbox_id_slots = 4096;
};

// All checks, in the order in which a person should read them. Takes about 10 ms.
std::vector<Check> probe_host(const ProbeOptions& options);

// Those that backend lxc cannot do without. `directory` lies on the store's file system; or empty.
std::vector<Check> check_container_host(const std::string& directory);

// The same for containers that an engine makes.
std::vector<Check> check_engine_host(const std::string& directory);

std::string kernel_release();
// What is wrong with a kernel that calls itself so (uname(2)), and what to do; nothing: it is fit.
std::optional<std::pair<std::string, std::string>> kernel_fault(const std::string& release,
                                                                const std::string& version);
std::string cgroup_kind();  // "v2", "v1-hybrid", "v1", "none"

}  // namespace moorage::backends
