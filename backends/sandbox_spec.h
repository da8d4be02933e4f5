// What a backend makes a sandbox from.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/net/provider_rules.h"

namespace moorage::backends {

struct Limits {
  uint64_t memory_bytes = 4ULL << 30;  // all commands together; the warden has extra
  double cpus = 2;
  uint32_t pids = 4096;
};

inline constexpr int kOnlyPlace = -1;

// A detached mount made by the caller, to be attached at `target` (absolute, inside). Without one,
// an empty directory where the caller attaches it later (base/os/namespaces.h).
struct Mount {
  int fd = kOnlyPlace;  // borrowed for the call
  std::string target;
};

// The files of a workspace as another machine gets them: each base tree once.
struct RemoteFiles {
  uint64_t generation = 0;  // rises with each sandbox of the store
  // Of what is mounted at kBaseInside, and of the git objects. The same key always has the same
  // files; of objects, more may come.
  std::string base_key{};
  std::string objects_key{};
};
inline constexpr const char* kBaseInside = "/.moorage/base";
inline constexpr const char* kObjectsInside = "/.moorage/objects";

// One layer over the base tree, for such a machine: detached mounts of its directories, with the
// owners of the workspace's own mounts, borrowed. -1: it has none.
struct FileLayer {
  int tree = -1;
  int home = -1;
};

struct SandboxSpec {
  std::string name;       // "moorage-<store>-sb_7": also names the container and cgroup
  std::string directory;  // sandboxes/<sb>/, exists, private, disposable
  std::string image = "host";
  std::string runtime{};       // one from Capabilities; empty: the default
  uint32_t first_host_id = 0;  // inside ids 0..65535 are host ids first_host_id...
  std::vector<Mount> mounts;   // /workspace, /home/user, the git objects
  std::string certificates{};  // the directory that trust.h describes; empty: none
  Limits limits;
  bool sudo = true;  // password-less sudo inside the namespace
  // The warden's end of the line for the network (base/wire/network_line.h), borrowed for the call.
  // Without one, not even the resolver inside answers.
  int network_line = -1;
  // These two are for a backend with Capabilities::remote. The rules count where a rented machine
  // gives no network namespace; without them its provider lets nothing out.
  RemoteFiles remote{};
  base::ProviderRules provider_rules{};
  std::map<std::string, std::string> labels{};  // for people who inspect the engine
  std::chrono::milliseconds deadline{20'000};
};

}  // namespace moorage::backends
