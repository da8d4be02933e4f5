#include "cli/output/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace moorage::cli {
namespace {

// One terminal is raw at a time. The atomic says whether to restore it, so that the destructor and
// exit() do it once.
termios saved_settings;
int saved_fd = -1;
std::atomic<bool> is_raw{false};

void restore() {
  if (is_raw.exchange(false)) ::tcsetattr(saved_fd, TCSADRAIN, &saved_settings);
}

}  // namespace

Terminal Terminal::detect() {
  Terminal terminal;
  terminal.in = ::isatty(STDIN_FILENO) == 1;
  terminal.out = ::isatty(STDOUT_FILENO) == 1;
  terminal.err = ::isatty(STDERR_FILENO) == 1;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* type = std::getenv("TERM");
  const bool dumb = type == nullptr || std::strcmp(type, "dumb") == 0;
  terminal.colours = terminal.out && !dumb && (no_colour == nullptr || *no_colour == '\0');
  terminal.columns = window_size(STDOUT_FILENO).columns;
  return terminal;
}

WindowSize window_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

RawMode::RawMode(int fd) {
  base::check(::tcgetattr(fd, &saved_settings), "read the terminal's settings");
  saved_fd = fd;
  termios raw = saved_settings;
  ::cfmakeraw(&raw);
  static const bool at_exit = std::atexit(restore) == 0;
  static_cast<void>(at_exit);
  base::check(::tcsetattr(fd, TCSADRAIN, &raw), "set the terminal to raw mode");
  is_raw = true;
}

RawMode::~RawMode() { restore(); }

}  // namespace moorage::cli
