// The control groups of an engine's container, for programs inside that look for their limits. The
// engine gives it a cgroup namespace rooted in the engine's own group, and nothing can exchange it.
// The sandbox's processes are in another group, so /proc/self/cgroup shows a path like
// "/../../moorage/NAME/cmd/EXEC". Programs append it to the mount point and read the result: so the
// right group is shown there (docs/decisions/0390).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backends/cgroups/cgroups.h"
#include "base/os/process.h"

namespace moorage::backends {

struct ContainerCgroups {
  std::vector<std::pair<std::string, std::string>> shown;  // as SandboxCgroup::shown, in this order
  std::vector<std::pair<std::string, std::string>> links;  // places below /sys, and to where
};

// While `init` is in the engine's groups.
ContainerCgroups container_cgroups(const SandboxCgroup& group, const base::ProcessIdentity& init);

// Where a path of a hierarchy leads that is appended to `mount` as a namespace rooted in `root`
// shows it: ("/docker/1", "/moorage/a", "/sys/fs/cgroup") is "/sys/moorage/a". Empty: outside /sys,
// or below the mount, where nothing can be added.
std::string place_inside(const std::string& root, const std::string& path,
                         const std::string& mount);

}  // namespace moorage::backends
