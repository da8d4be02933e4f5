// The request to moorage-launch: one JSON object on standard input, written by
// backends/launcher.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moorage::launch {

struct Request {
  std::string mode;  // "lxc", "process", "link", or "furnish": a container made by an engine
  std::string name;
  uint32_t first_host_id = 0;
  bool sudo = true;
  bool nested_namespaces = false;
  uint64_t memory_bytes = 0;  // of the commands; private tmpfs may use half
  std::string rootfs;         // the skeleton; empty for "process"
  std::string warden;         // an execute-only copy
  std::string bootstrap;      // a listening socket
  std::string log;
  std::string cgroup;                   // the sandbox's group in the unified hierarchy
  std::vector<std::string> join_files;  // to write "0" to, see SandboxCgroup::join_files
  std::vector<std::string> places;      // absolute, inside: for the caller's later mounts
  // See SandboxCgroup::shown, and the files to join the groups there.
  std::vector<std::pair<std::string, std::string>> cgroups;
  std::vector<std::string> join_commands;
  std::vector<int> processors;  // empty: any
  std::string processors_file;  // lists them; shown as kOnlineProcessors

  // For "link", where `warden` is moorage-link.
  std::string link_config;
  std::vector<std::string> environment;  // "NAME=value", beside PATH

  // For "furnish".
  int init_pid = 0;
  uint64_t init_start_ticks = 0;
  bool maps_ids = true;                                    // it has a user namespace
  bool host_usr = true;                                    // its image is `host`
  uint32_t owner_id = 0;                                   // of private directories
  std::vector<std::pair<std::string, std::string>> files;  // on the host, and where to show them
  std::vector<std::pair<std::string, std::string>> cgroup_links;  // places below /sys, and to where
};

// Calls visit(key, field) for each member of the JSON object.
template <typename R, typename Visit>
void each_field(R& request, const Visit& visit) {
  visit("mode", request.mode);
  visit("name", request.name);
  visit("first_host_id", request.first_host_id);
  visit("sudo", request.sudo);
  visit("nested_namespaces", request.nested_namespaces);
  visit("memory_bytes", request.memory_bytes);
  visit("rootfs", request.rootfs);
  visit("warden", request.warden);
  visit("bootstrap", request.bootstrap);
  visit("log", request.log);
  visit("cgroup", request.cgroup);
  visit("join", request.join_files);
  visit("places", request.places);
  visit("cgroups", request.cgroups);
  visit("join_commands", request.join_commands);
  visit("processors", request.processors);
  visit("processors_file", request.processors_file);
  visit("link_config", request.link_config);
  visit("environment", request.environment);
  visit("init_pid", request.init_pid);
  visit("init_start_ticks", request.init_start_ticks);
  visit("maps_ids", request.maps_ids);
  visit("host_usr", request.host_usr);
  visit("owner_id", request.owner_id);
  visit("files", request.files);
  visit("cgroup_links", request.cgroup_links);
}

Request parse_request(const std::string& text);

}  // namespace moorage::launch
