#include "backends/remote/options.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::backends {

base::Fd open_key(const std::string& key_file) {
  // Non-blocking: the open of a pipe would wait for its writer.
  base::Fd file = base::open_file(key_file, O_RDONLY | O_NONBLOCK);
  struct stat info;
  base::check(fstat(file.get(), &info), "read the mode of " + key_file);
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    throw Error(Code::permission_denied,
                "cannot use the key in " + key_file + ": " +
                    (S_ISREG(info.st_mode) ? "the file is empty" : "it is not a regular file"),
                "put the provider's API key there, on one line");
  }
  if (info.st_uid != 0 || (info.st_mode & 077) != 0) {
    throw Error(Code::permission_denied,
                "cannot use the key in " + key_file + ": others than root may read the file",
                "chown root " + key_file + "; chmod 600 " + key_file);
  }
  return file;
}

}  // namespace moorage::backends
