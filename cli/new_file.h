// A file that has its name only when all of it is there and on the disk; until then it is
// PATH.part, which goes if nothing comes of it. One that is there already is left alone, and
// refused.
#pragma once

#include <string>

#include "base/fd.h"

namespace moorage::cli {

class NewFile {
 public:
  enum class Existing { replaced, refused };
  // refused: throws already_exists where there is a file of that name, now or at commit().
  explicit NewFile(const std::string& path, Existing existing = Existing::replaced);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  int fd() const { return fd_.get(); }  // to write, and to read again
  void commit();

 private:
  const std::string path_;
  const std::string temporary_;
  const Existing existing_;
  base::Fd fd_;
  bool done_ = false;
};

}  // namespace moorage::cli
