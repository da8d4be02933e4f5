// A file that a command writes. Until it is committed it is PATH.part. An existing file is
// replaced, or else kept and the new one refused. A link, device or pipe is never replaced: as root
// that would break /dev/null for the whole host.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/error.h"
#include "base/os/atomic_file.h"
#include "base/os/files.h"

namespace moorage::cli {

enum class Existing { replaced, refused };

// Throws invalid_argument for a PATH that is not a file, and already_exists for PATH.part, which
// another process may be writing, and, if refused, for PATH.
inline base::AtomicFileOptions new_file(const std::string& path,
                                        Existing existing = Existing::replaced) {
  base::AtomicFileOptions options{
      .suffix = ".part", .replaces = existing == Existing::replaced, .elsewhere = true};
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode))
    throw Error(Code::invalid_argument, path + " is not a regular file",
                "choose another name; - is standard output");
  if (!options.replaces && base::path_exists(path))
    throw Error(Code::already_exists, path + " already exists",
                "replace it with --force, or choose another name");
  if (base::path_exists(path + options.suffix))
    throw Error(Code::already_exists, path + options.suffix + " already exists",
                "another moorage is writing it; if none is, delete it");
  return options;
}

}  // namespace moorage::cli
