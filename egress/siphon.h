// Bytes on their way to a socket that nobody has to read any more: the kernel moves them through a
// pipe, and nothing is copied. Neither the sockets nor the pipe block; SIGPIPE must be ignored.
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/os/fd.h"

namespace moorage::egress {

class Siphon {
 public:
  // Empty if there are enough of them, or the kernel gives no pipe of this size (descriptors, or
  // fs.pipe-user-pages-soft, usually 64 MiB for all sandboxes): copying is faster than a small
  // pipe.
  static std::unique_ptr<Siphon> make();
  ~Siphon();
  Siphon(const Siphon&) = delete;
  Siphon& operator=(const Siphon&) = delete;

  // Only while it is empty. Like recv(): 0 at the end of the stream, -1 with errno.
  ssize_t fill(const Fd& from);
  // False, with errno, if the socket is broken. It may take less than all, or nothing.
  bool drain(const Fd& to);
  size_t held() const { return held_; }

  // The most that fs.pipe-max-size usually allows. With 256 KiB a gigabyte costs 1.5 times as much.
  static constexpr int kSize = 1 << 20;
  static constexpr int kMost = 4;  // at once in this process

 private:
  explicit Siphon(base::Pipe pipe);
  base::Pipe pipe_;
  size_t held_ = 0;
};

}  // namespace moorage::egress
