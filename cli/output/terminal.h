// Properties of the three standard streams, and raw mode that always ends.
#pragma once

#include <unistd.h>

namespace moorage::cli {

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
  static Terminal detect();
};

WindowSize window_size(int fd);  // 80x24 when it is not a terminal

// Raw mode from construction to destruction; exit() ends it, too.
class RawMode {
 public:
  explicit RawMode(int fd);
  ~RawMode();
  RawMode(RawMode&&) = delete;
};

}  // namespace moorage::cli
