// The key of a provider's account, from its file. It stays in the memory of moorage-link.
#pragma once

#include <string>

namespace moorage::link {

// Without the line end. Empty for an empty path: this driver needs none. Throws permission_denied
// unless it is a file of root that nobody else may read, not_found, io.
std::string read_provider_key(const std::string& key_file);

}  // namespace moorage::link
