// Our standard input where it is a pipe or a file that others read, too, such as the list of a
// shell's loop. Bytes are copied ahead to a command that may read them, and taken from the others
// only once it has: tee(2) copies from a pipe, pread(2) from a file, and nothing moves until
// consume(). So a command that reads nothing leaves everything, as it would here.
// A command that we leave running keeps all that was sent to it, read or not, also the part of the
// last piece that did not arrive: at most 1 MiB, which then nobody reads.
// Offsets count from where the input stood at the construction. With several readers at the same
// time, bytes may be doubled or lost, but no call here waits for bytes that another one took.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::cli {

class SharedInput {
 public:
  static bool suits(int fd);  // a pipe, or a file

  explicit SharedInput(int fd);  // borrowed

  struct Peek {
    size_t bytes = 0;  // 0: none now
    bool at_end = false;
  };
  // Copies what is there from offset `from` on, which is at or after the consumed part.
  Peek peek(uint64_t from, char* buffer, size_t size);
  // Everything before `until` is the command's. Never goes back; of a pipe, takes what is there.
  void consume(uint64_t until);
  uint64_t consumed() const { return consumed_; }
  // Whether waiting for POLLIN makes sense: a pipe without copied bytes in it.
  bool can_wait(uint64_t from) const { return is_pipe_ && from == consumed_; }

 private:
  Peek peek_pipe(uint64_t from, char* buffer, size_t size);

  int fd_;
  bool is_pipe_;
  off_t start_ = 0;  // of a file
  uint64_t consumed_ = 0;
  base::Pipe spare_;  // for copies of the pipe
  Fd nowhere_;        // /dev/null, for what is taken from it
};

}  // namespace moorage::cli
