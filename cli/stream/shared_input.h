// Our standard input where it is a pipe, a socket or a file that others read, too, such as the list
// of a shell's loop. Bytes are copied ahead to a command that may read them, and taken from the
// others only once it has: tee(2) copies from a pipe, MSG_PEEK from a socket (node gives its
// children sockets), pread(2) from a file, and nothing moves until consume(). So a command that
// reads nothing leaves everything, as it would here. A command that we leave running keeps all that
// was sent to it, read or not, also the part of the last piece that did not arrive: at most 1 MiB,
// which then nobody reads. Offsets count from where the input stood at the construction. With
// several readers at the same time, bytes may be doubled or lost, but no call here waits for bytes
// that another one took.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::cli {

class SharedInput {
 public:
  static bool suits(int fd);  // a pipe, a socket of a stream, or a file

  explicit SharedInput(int fd);  // borrowed

  struct Peek {
    size_t bytes = 0;  // 0: none now
    bool at_end = false;
  };
  // Copies what is there from offset `from` on, which is at or after the consumed part.
  Peek peek(uint64_t from, char* buffer, size_t size);
  // Everything before `until` is the command's. Never goes back; of a pipe or socket, takes what is
  // there.
  void consume(uint64_t until);
  uint64_t consumed() const { return consumed_; }
  // Whether waiting for POLLIN makes sense: a pipe or socket without copied bytes in it.
  bool can_wait(uint64_t from) const { return kind_ != Kind::file && from == consumed_; }

 private:
  enum class Kind { pipe, socket, file };
  Peek peek_stream(uint64_t from, char* buffer, size_t size);
  // known: bytes in front that were copied before.
  Peek peek_pipe(size_t known, char* buffer, size_t size);
  Peek peek_socket(size_t known, char* buffer, size_t size);

  int fd_;
  Kind kind_;
  off_t start_ = 0;  // of a file
  uint64_t consumed_ = 0;
  base::Pipe spare_;        // for copies of the pipe
  Fd nowhere_;              // /dev/null, for what is taken from it
  std::vector<char> copy_;  // of the socket
};

}  // namespace moorage::cli
