// Reads a zstd frame of zstd_frame.h from a part of a file, in the sizes that its format needs.
// Frames are untrusted: their ends and lengths are checked, and every error is corrupted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/little_endian.h"
#include "packs/zstd_frame.h"

namespace moorage::packs {

// Reads a part of a file, from its beginning; the caller keeps the descriptor.
ByteSource part_of_file(int fd, uint64_t from, uint64_t bytes);
// Checks the SHA-256 before a decompressor sees the frame. `what`: "a pack". `check_stopping`:
// called now and then, and may throw to stop.
void verify_frame(int fd, uint64_t from, uint64_t bytes, const std::string& what,
                  const std::function<void()>& check_stopping = {});

class FrameReader {
 public:
  FrameReader(ByteSource source, std::string what)
      : frame_(std::move(source)), what_(std::move(what)) {}

  void pass_on(uint64_t bytes, const std::function<void(std::string_view)>& sink);  // may be empty
  std::string take(uint64_t bytes);
  template <typename Number>
  Number number() {
    return base::number_at<Number>(take(sizeof(Number)).data());
  }
  std::string text(size_t most);  // preceded by its length, 32 bits
  void require_end();
  // Where a stream holds several frames: call expect_more() first, and the others after the end.
  void expect_more() { frame_.expect_more(); }
  void start_next() { frame_.start_next(); }
  uint64_t frame_bytes() const { return frame_.facts().bytes; }
  std::string raw(size_t at_most) { return frame_.raw(at_most); }
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  Decompressor frame_;
  const std::string what_;
  std::string_view have_;
};

}  // namespace moorage::packs
