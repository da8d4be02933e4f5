// Test mounts that show whether this kernel and file system support them (probe.h).
#pragma once

#include <cstdint>
#include <string>

namespace moorage::backends {

// Each returns a sentence, or throws Error(unsupported) with a hint.
std::string try_idmapped_mount(const std::string& directory);
// A /proc in a new user namespace: refused where parts of this host's own /proc are hidden.
std::string try_own_proc();
// An overlay with idmapped lower and upper layers, with writes, used as workspaces do.
std::string try_overlay(const std::string& store, uint32_t disk_first_id);

}  // namespace moorage::backends
