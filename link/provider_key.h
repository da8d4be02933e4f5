// The key of a provider's account, from where the configuration says that it is. It stays in the
// memory of moorage-link. A process of its own reads it (`moorage-link key`), because a command may
// take its time, and because the worker has given up its rights.
#pragma once

#include <string>

#include "base/wire/link_config.h"

namespace moorage::link {

// Without the line end. Throws permission_denied for a file that others than root may read, and the
// reason why there is no key; never with words of a command, which may have printed the key.
std::string read_key(const base::LinkKey& key);
// The one that the configuration names; empty if it names none.
std::string read_provider_key(const base::LinkConfig& config);

// Both ends of a pipe: writes the key, or the reason why there is none; and reads it or throws the
// reason.
void send_key(int pipe, const base::LinkConfig& config);
std::string receive_key(int pipe);

}  // namespace moorage::link
