// A file that a command writes. Until it is committed it is PATH.part. An existing file is
// replaced, or else kept and the new one refused.
#pragma once

#include <string>

#include "base/error.h"
#include "base/os/atomic_file.h"
#include "base/os/files.h"

namespace moorage::cli {

enum class Existing { replaced, refused };

// Throws already_exists for PATH.part, which another process may be writing, and, if refused, for
// PATH.
inline base::AtomicFileOptions new_file(const std::string& path,
                                        Existing existing = Existing::replaced) {
  base::AtomicFileOptions options{
      .suffix = ".part", .replaces = existing == Existing::replaced, .elsewhere = true};
  if (!options.replaces && base::path_exists(path))
    throw Error(Code::already_exists, path + " already exists",
                "replace it with --force, or choose another name");
  if (base::path_exists(path + options.suffix))
    throw Error(Code::already_exists, path + options.suffix + " already exists",
                "another moorage is writing it; if none is, delete it");
  return options;
}

}  // namespace moorage::cli
