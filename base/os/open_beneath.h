// The only way to open a path below a directory that an agent can write: a layer's upper directory,
// or anything copied from one. openat2(2) with RESOLVE_BENEATH; no symbolic link anywhere in the
// path, no magic link, no other mount. O_NONBLOCK and O_NOCTTY, so that a FIFO or terminal blocks
// nobody. Creating requires O_EXCL, so that no planted file is opened, truncated or written. A
// descriptor pins the directory; its own path is ours. tests/layering/check_sources.py lets no
// other code open below a layer.
// For a path as seen inside a sandbox, where links are followed within the root, use open_in_root
// in base/os/files.h.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/os/fd.h"

namespace moorage::base {

// Relative; "" is the directory itself. O_CREAT needs O_EXCL; O_TRUNC is not allowed (asserted).
// With O_PATH the last part may be a link, which is then opened itself. Empty with errno on
// failure: ELOOP for a link, EXDEV for "..", a leading "/" or a mount.
Fd try_open_beneath(int directory, const std::string& path, int flags, mode_t mode = 0);
// Throws not_found, already_exists, invalid_argument for anything except an openable file or
// directory, and the other codes of throw_errno.
Fd open_beneath(int directory, const std::string& path, int flags, mode_t mode = 0);

// Adds O_DIRECTORY; the result can be listed and synced. Throws, or is empty with errno.
Fd open_directory_beneath(int directory, const std::string& path);
Fd try_open_directory_beneath(int directory, const std::string& path);

// As open_beneath, but refuses anything except a regular file (invalid_argument; EINVAL): FIFO,
// socket, device, directory.
Fd open_regular_beneath(int directory, const std::string& path, int flags);
Fd try_open_regular_beneath(int directory, const std::string& path, int flags);

// Whether it has no entry; reads only as much as needed.
bool directory_is_empty(const std::string& path);

// The parent directory, for a walk upward. Empty if it is not the expected one (the directory was
// moved meanwhile) or cannot be opened.
Fd try_open_parent(int directory, dev_t device, ino_t inode);

}  // namespace moorage::base
