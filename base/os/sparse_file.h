// Writes a stream of bytes into an empty file. Runs of zeros become holes, so a sparse file stays
// one without a word about it on the way, and a disk image of zeros takes no space.
#pragma once

#include <cstdint>
#include <string_view>

namespace moorage::base {

class SparseFile {
 public:
  explicit SparseFile(int fd) : fd_(fd) {}  // borrowed
  void write(std::string_view bytes);
  void finish();  // gives it its length, which the last hole lacks

 private:
  int fd_;
  uint64_t position_ = 0;
  uint64_t written_end_ = 0;
};

}  // namespace moorage::base
