// Prepares a machine through its provider's own ways to run a shell command and to write a file,
// before the outpost is there: DIR, and files with their digest. Needs sh, chmod, mkdir and mv
// there; without sha256sum a file is read back instead.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "link/driver.h"

namespace moorage::link {

class RemoteShell {
 public:
  struct Result {
    int64_t exit_code = 0;
    std::string output;  // its beginning; standard error may be in it
  };
  virtual ~RemoteShell() = default;
  virtual Result execute(const std::string& script, Deadline deadline) = 0;
  // A new file; directories above it exist.
  virtual void upload(const std::string& path, const std::string& bytes, Deadline deadline) = 0;
  // False: it does not exist.
  virtual bool download(const std::string& path, const std::function<void(std::string_view)>& take,
                        Deadline deadline) = 0;
};

// DIR: the given one, or .moorage in the home there unless that is the sandbox's /home/user, or
// /var/tmp/.moorage. Made, private.
std::string make_directory(RemoteShell& shell, const std::string& wanted, Deadline deadline);
void put_file(RemoteShell& shell, const File& file, Deadline deadline);  // as Driver::put

// One word for a shell.
std::string shell_quoted(std::string_view word);

struct FormPart {
  std::string name;
  std::string filename;  // empty: a plain value
  std::string_view bytes;
};
// A body of multipart/form-data.
std::string form_body(const std::vector<FormPart>& parts, const std::string& boundary);

}  // namespace moorage::link
