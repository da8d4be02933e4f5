// The disk below a path, as the io controllers name it.
#pragma once

#include <string>

namespace moorage::backends {

// "254:0": a whole disk, never a partition, which the controllers do not take. Where a file system
// has no device of its own (btrfs), the one it was mounted from. Error(unsupported): there is none,
// as for tmpfs.
std::string disk_of(const std::string& path);

}  // namespace moorage::backends
