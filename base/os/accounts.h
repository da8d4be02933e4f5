// Names of this host's users, for texts that people read. Asks the host's user database, which may
// be a slow directory service, so an answer is remembered for a minute.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::base {

std::string user_name(uint32_t uid);  // "uid 1000" if it has no name

}  // namespace moorage::base
