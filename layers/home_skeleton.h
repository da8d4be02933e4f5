// The home directory of a new workspace, one for the whole store: what /etc/skel of this host has,
// and an identity for git. It is the lowest layer below every home.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::layers {

// <store>/images/home, made if it is not there. Its files belong to the agent's user on disk, whose
// ids start at `first_id`.
std::string ensure_home_skeleton(const std::string& store, uint32_t first_id);

}  // namespace moorage::layers
