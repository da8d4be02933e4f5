// Resolves names of the host's users and groups to ids. A number is used as an id even if the host
// has no such user or group.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::config {

// Throw invalid_argument for a name unknown to the host, io if the lookup fails.
uint32_t user_id(const std::string& name);
uint32_t group_id(const std::string& name);

}  // namespace moorage::config
