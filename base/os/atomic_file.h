// A file that appears under its name complete or not at all. Until a commit it has a temporary name
// in the same directory; destruction without a commit removes it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/os/fd.h"

namespace moorage::base {

struct AtomicFileOptions {
  mode_t mode = 0600;       // regardless of the umask
  std::string suffix = {};  // of the temporary name, which must be free; default: a name of our own
  bool replaces = true;     // false: a commit throws already_exists instead
  bool elsewhere = false;   // not on the store's disk: see sync_elsewhere
};

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, AtomicFileOptions options = {});
  // In a directory that an agent may write: open_beneath. `name` has one part.
  AtomicFile(int directory, std::string name, AtomicFileOptions options = {});
  ~AtomicFile();
  AtomicFile(AtomicFile&&) = delete;

  int fd() const { return fd_.get(); }  // for reading and writing
  const std::string& temporary() const {
    return temporary_;
  }  // relative to the directory, if given
  void write(std::string_view bytes);
  void sync();
  void commit();          // does not sync
  void commit_durable();  // syncs the file, unless that was the last call, and then the directory

 private:
  const int directory_;  // AT_FDCWD: name_ is a path
  const std::string name_;
  const AtomicFileOptions options_;
  std::string temporary_;  // empty after a commit
  Fd fd_;
  bool synced_ = false;
};

}  // namespace moorage::base
