// This host's users: their names, for texts that people read, and their groups. Asks the host's
// user database, which may be a slow directory service, so a name is remembered for a minute.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moorage::base {

std::string user_name(uint32_t uid);  // "uid 1000" if it has no name
// Empty if the user database does not know this user or does not answer.
std::optional<std::vector<uint32_t>> groups_of_user(uint32_t uid);

}  // namespace moorage::base
