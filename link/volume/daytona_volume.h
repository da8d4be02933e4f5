// A volume of Daytona, which keeps base trees for the next machines (link/volume/kept_tree.h).
// Machines of all users share it, so a machine gets only the part with its own base tree:
// moorage-<store>/<key of the tree>.
#pragma once

#include <string>

#include "link/drivers/json_reader.h"
#include "link/drivers/provider_api.h"

namespace moorage::link {

// The id of the volume, once it can be mounted. Makes it if there is none of that name.
std::string ready_volume(ProviderApi& api, const std::string& name, Deadline deadline);
std::string part_name(const Labels& labels, const std::string& tree);
// For `volumes` of a create.
JsonObject part_of_volume(const std::string& id, const std::string& part);
// unsupported: this sandbox sees a whole volume at kVolumePlace, as of a server that does not know
// parts.
void require_part_of_volume(const JsonObject& sandbox);

}  // namespace moorage::link
