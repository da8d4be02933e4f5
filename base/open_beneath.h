// The only way to open a path below a directory that an agent can write: an upper directory of a
// layer, or anything copied from one. openat2(2) with RESOLVE_BENEATH, no symbolic link anywhere in
// the path, no magic link, no other mount; O_NONBLOCK and O_NOCTTY, so that a FIFO or a terminal
// holds nobody; what may be created needs O_EXCL, so that nothing that waits under a name is
// opened, truncated or written. The directory itself is pinned by its descriptor; its own path is
// ours. tests/layering/check_sources.py lets no other code open below a layer.
// For what runs inside a sandbox's own view, where links are followed within the root, there is
// open_in_root in base/files.h.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "base/fd.h"

namespace moorage::base {

// Relative, "" is the directory itself. O_CREAT needs O_EXCL and O_TRUNC is not allowed (asserted).
// With O_PATH the last part may be a link, which is then opened itself.
// Empty with errno where it fails: ELOOP for a link, EXDEV for "..", a leading "/" or a mount.
Fd try_open_beneath(int directory, const std::string& path, int flags, mode_t mode = 0);
// Throws: not_found, already_exists, invalid_argument for what is not a file or directory that can
// be opened, and the others of throw_errno.
Fd open_beneath(int directory, const std::string& path, int flags, mode_t mode = 0);

// O_DIRECTORY added; can be listed and synced. Throws, or empty with errno.
Fd open_directory_beneath(int directory, const std::string& path);
Fd try_open_directory_beneath(int directory, const std::string& path);

// As open_beneath, and refuses what is not a regular file (invalid_argument; EINVAL): FIFO, socket,
// device, directory.
Fd open_regular_beneath(int directory, const std::string& path, int flags);
Fd try_open_regular_beneath(int directory, const std::string& path, int flags);

// Whether it has no entry; reads no more than decides.
bool directory_is_empty(const std::string& path);

// The directory above, for a walk that climbs: empty if it is not the one that is expected
// (somebody moved the directory meanwhile) or cannot be opened.
Fd try_open_parent(int directory, dev_t device, ino_t inode);

// A file beside its final place: made under a temporary name with O_EXCL, removed again unless
// commit() gave it its name. A file that an earlier process left under the temporary name goes.
// `name` has one part.
class NewFileBeneath {
 public:
  NewFileBeneath(int directory, std::string name, mode_t mode);
  ~NewFileBeneath();
  NewFileBeneath(const NewFileBeneath&) = delete;
  NewFileBeneath& operator=(const NewFileBeneath&) = delete;

  int fd() const { return fd_.get(); }
  void commit();  // replaces what has the name, unless that is a directory

 private:
  int directory_;
  std::string name_;
  std::string temporary_;
  Fd fd_;
};

}  // namespace moorage::base
