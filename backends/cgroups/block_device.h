// The disk below a path, named as the io controllers expect.
#pragma once

#include <string>

namespace moorage::backends {

// "254:0": a whole disk, never a partition, which the controllers reject. If a file system has no
// device of its own (btrfs), the device it was mounted from. Error(unsupported) if none exists, as
// for tmpfs.
std::string disk_of(const std::string& path);

}  // namespace moorage::backends
