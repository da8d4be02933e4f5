// What the three standard streams are, and raw mode with its guaranteed end.
#pragma once

#include <memory>
#include <string>

namespace moorage::cli {

// Where a command reads and writes; tests pass other descriptors than 0, 1, 2.
struct Streams {
  int in = 0;
  int out = 1;
  int err = 2;
};

struct WindowSize {
  int columns = 80;
  int rows = 24;
};

struct Terminal {
  bool in = false;  // the stream is a terminal
  bool out = false;
  bool err = false;
  bool colours = false;  // out is a terminal, NO_COLOR is not set, TERM is not "dumb"
  int columns = 80;      // of out
  static Terminal look(const Streams& streams);
};

WindowSize window_size(int fd);  // 80x24 when it is no terminal

// Raw mode from construction to destruction, and also when the process leaves through exit().
class RawMode {
 public:
  explicit RawMode(int fd);
  ~RawMode();
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
};

}  // namespace moorage::cli
