// A new file that gets its name only when it is complete and synced. Until then it is PATH.part,
// which is deleted if it is never committed. An existing file stays and the new one is refused.
#pragma once

#include <string>

#include "base/os/fd.h"

namespace moorage::cli {

class NewFile {
 public:
  enum class Existing { replaced, refused };
  // refused: throws already_exists if a file of that name exists, now or at commit().
  explicit NewFile(const std::string& path, Existing existing = Existing::replaced);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  int fd() const { return fd_.get(); }  // for writing and reading
  void commit();

 private:
  const std::string path_;
  const std::string temporary_;
  const Existing existing_;
  base::Fd fd_;
  bool done_ = false;
};

}  // namespace moorage::cli
