// Names of the host's users and groups to ids. A number is an id as it stands, whether the host
// knows it or not.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::config {

// Throw invalid_argument for a name that the host does not know, io where it cannot be asked.
uint32_t user_id(const std::string& name);
uint32_t group_id(const std::string& name);

}  // namespace moorage::config
