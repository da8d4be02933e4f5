// The store in a file: an ext4 image that is mounted on the store's directory. It is for file
// systems that cannot hold layers themselves (NFS, an overlay, FUSE): they hold one large file, and
// all else is as on a disk (docs/decisions/0314). Nothing is formatted that exists, and nothing is
// started beside an image that is not there: the directory below the mount remembers which one it
// was.
//
// The image is given its whole size when it is made, as a file system whose device runs full loses
// what it had acknowledged. Two at a time never mount it: who uses it holds a lock on the file, and
// ext4's multiple mount protection sees another host where the lock does not reach.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace moorage::workspace {

struct StoreImageOptions {
  std::string directory;  // of the store
  std::string image;      // a file; empty: the store lies on its directory's own file system
  uint64_t bytes = 0;     // of the file; more than it has: it grows
};

class StoreImage {
 public:
  // Makes it if there never was one, and mounts it, unless it is mounted; it stays so, as sandboxes
  // do. conflict: somebody else uses it, or the directory is not empty; not_found: it was there
  // once; invalid_argument: too small; resource_exhausted: no room for it.
  static StoreImage open(const StoreImageOptions& options);
  static bool is_mounted(const StoreImageOptions& options);

 private:
  base::Fd file_;  // and its lock; none without an image
};

}  // namespace moorage::workspace
