// Packs of trees in a volume: object storage that several machines of a provider mount through
// FUSE. A file there is written once, from its beginning to its end, and never changed, renamed or
// appended to. It may be missing, cut, or written by somebody hostile, and a call may hang: whoever
// calls this is an operation that holds no lock.
#pragma once

#include <cstdint>
#include <string>

#include "base/os/fd.h"

namespace moorage::outpost {

struct VolumeFile {
  std::string path;
  std::string digest;  // SHA-256 in hex
  uint64_t bytes = 0;
};
// A copy in `directory`, at its beginning. Throws corrupted if size or digest differ; a file of
// that size with another digest is removed.
Fd take_file(const VolumeFile& wanted, const std::string& directory);

// Writes a new file with the contents of `copy`. Throws when it could not; then none is left if
// possible.
void keep_file(const Fd& copy, const std::string& path);

}  // namespace moorage::outpost
