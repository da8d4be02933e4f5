// Reads a zstd frame of archive_zstd.h from a part of a file, in the sizes that its format asks
// for. A frame is a stranger's: its end and its lengths are looked at, and each error is corrupted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/little_endian.h"
#include "workspace/archive_zstd.h"

namespace moorage::workspace {

// A part of a file, from its beginning; the descriptor stays the caller's.
ByteSource part_of_file(int fd, uint64_t from, uint64_t bytes);
// By its SHA-256 alone, before a decompressor sees it. `what`: "a pack".
void verify_frame(int fd, uint64_t from, uint64_t bytes, const std::string& what);

class FrameReader {
 public:
  FrameReader(ByteSource source, std::string what);

  void pass_on(uint64_t bytes, const std::function<void(std::string_view)>& sink);  // may be empty
  std::string take(uint64_t bytes);
  template <typename Number>
  Number number() {
    return base::number_at<Number>(take(sizeof(Number)).data());
  }
  std::string text(size_t most);  // with its length before it, 32 bits
  void require_end();
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  Decompressor frame_;
  const std::string what_;
  std::string_view have_;
};

}  // namespace moorage::workspace
