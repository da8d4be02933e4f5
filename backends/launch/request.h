// The request to moorage-launch: one JSON object on standard input, written by
// backends/launcher.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moorage::launch {

struct Request {
  std::string mode;  // "lxc", "process", or "furnish": a container made by an engine
  std::string name;
  uint32_t first_host_id = 0;
  bool sudo = true;
  bool nested_namespaces = false;
  uint64_t memory_bytes = 0;  // of the commands; private tmpfs may use half
  std::string rootfs;         // the skeleton
  std::string warden;         // an execute-only copy
  std::string bootstrap;      // a listening socket
  std::string log;
  std::string cgroup;               // the sandbox's group in the unified hierarchy
  std::vector<std::string> join;    // files to write "0" to
  std::vector<std::string> places;  // absolute, inside: for the caller's later mounts

  // For "furnish".
  int init_pid = 0;
  uint64_t init_start_ticks = 0;
  bool maps_ids = true;
  bool host_usr = true;
  uint32_t owner_id = 0;                                   // of private directories
  std::vector<std::pair<std::string, std::string>> files;  // on the host, and where to show them
};

Request parse_request(const std::string& text);

}  // namespace moorage::launch
