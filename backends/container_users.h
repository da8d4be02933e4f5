// Who is who inside a container that an engine made: its image knows nothing of the agent's user,
// nor of its own host name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/process.h"

namespace moorage::backends {

inline constexpr uint32_t kInsideUser = 1000;  // warden/users.h

// The host id of the process's root: the first line of its uid_map. 0: it has no user namespace of
// its own.
uint32_t first_mapped_id(const base::ProcessIdentity& process);

// Copies of the container's /etc/passwd and /etc/group in `directory`, in which `user` has that id
// (inside) and /home/user, files with the names of the sandbox, and where each is to be shown. None
// of a file that the container lacks. All that is read is hostile: an image may hold anything.
std::vector<std::pair<std::string, std::string>> write_users(const base::ProcessIdentity& init,
                                                             uint32_t user_id,
                                                             const std::string& directory);

}  // namespace moorage::backends
