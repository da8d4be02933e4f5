#include "cli/local/new_file.h"

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::cli {

base::AtomicFileOptions new_file(const std::string& path, Existing existing) {
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
