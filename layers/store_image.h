// The store in a file: an ext4 image mounted on the store's directory. It is for file systems that
// cannot hold layers themselves (NFS, an overlay, FUSE): they hold one large file, and everything
// else works as on a disk (docs/decisions/0314). It never formats an existing file, and never
// starts an empty store if the image is missing: the directory below the mount names its image.
//
// The image gets its whole size at its creation, because a file system on a full device loses
// acknowledged writes. Two users never mount it at once: the user holds a lock on the file, and
// ext4's multiple mount protection detects another host that the lock does not reach.
#pragma once

#include <cstdint>
#include <string>

#include "base/os/fd.h"

namespace moorage::layers {

struct StoreImageOptions {
  std::string directory;  // of the store
  std::string image;      // a file; empty: no image
  uint64_t bytes = 0;     // of the file; a larger value grows it
};

class StoreImage {
 public:
  // Creates it if there never was one, and mounts it unless it is mounted; it stays mounted, as
  // sandboxes stay. conflict: another process uses it, or the directory is not empty; not_found: it
  // existed once; invalid_argument: too small; resource_exhausted: no room for it.
  static StoreImage open(const StoreImageOptions& options);
  static bool is_mounted(const StoreImageOptions& options);

 private:
  Fd file_;  // holds the lock; unset without an image
};

}  // namespace moorage::layers
