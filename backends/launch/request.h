// What moorage-launch is asked to do: one JSON object on standard input, written by
// backends/launcher.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moorage::launch {

struct Request {
  std::string mode;  // "lxc", "process", or "furnish": a container that an engine made
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
  std::vector<std::string> places;  // absolute, inside: directories where the caller mounts later

  // Of a container that is furnished.
  int init_pid = 0;
  uint64_t init_start_ticks = 0;
  bool maps_ids = true;
  bool host_usr = true;
  uint32_t owner_id = 0;                                   // of private directories
  std::vector<std::pair<std::string, std::string>> files;  // of the host, and where they are shown
};

Request parse_request(const std::string& text);

}  // namespace moorage::launch
