// A file that a command writes. Until it is committed it is PATH.part. An existing file is
// replaced, or else kept and the new one refused.
#pragma once

#include <string>

#include "base/os/atomic_file.h"

namespace moorage::cli {

enum class Existing { replaced, refused };

// Throws already_exists for PATH.part, which another process may be writing, and, if refused, for
// PATH.
base::AtomicFileOptions new_file(const std::string& path, Existing existing = Existing::replaced);

}  // namespace moorage::cli
