// User names inside a container made by an engine: its image knows neither the agent's user nor the
// sandbox's host name.
#pragma once

#include <cstdint>
#include <string>

#include "backends/engine/container_files.h"
#include "base/os/process.h"

namespace moorage::backends {

inline constexpr uint32_t kInsideUser = 1000;  // warden/spawn.h

// The host id of the process's root: the first line of its uid_map. 0: it has no user namespace of
// its own.
uint32_t first_mapped_id(const base::ProcessIdentity& process);

// Writes to `directory` copies of the container's /etc/passwd and /etc/group, where `user` has that
// id (inside) and /home/user, and files with the sandbox's names; returns where to show each. Skips
// files that the container lacks.
ShownFiles write_users(const base::ProcessIdentity& init, uint32_t user_id,
                       const std::string& directory);

}  // namespace moorage::backends
