// Runs the built `moorage` as a user does, with pipes (or a terminal) for its standard streams.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::test {

struct Ran {
  int code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

struct RunOptions {
  std::string socket;
  std::string input;
  std::map<std::string, std::string> environment;
  std::vector<int> closed = {};   // of 0, 1 and 2: not open when the program starts
  std::vector<int> ignored = {};  // signals ignored at the program's start
};

// Catch counts checks without a lock. A scripted server calls this between its checks and its
// answer; a test calls it after it waited for the program.
void order_checks();

Ran run_moorage(const std::vector<std::string>& words, const RunOptions& options);

// A program that still runs, for tests of signals and terminals.
class Running {
 public:
  Running(const std::vector<std::string>& words, const RunOptions& options,
          bool on_terminal = false);
  ~Running();
  void signal(int number) const;
  void write(std::string_view bytes) const;  // to its standard input
  void close_input();
  int unread_input() const;                       // bytes in the pipe, even after its end
  void close_output();                            // stops reading
  void close_terminal();                          // like closing its window
  std::string read_until(std::string_view text);  // of standard output; fails after 20 s
  Ran finish();                                   // reads everything and waits
  int terminal() const { return terminal_.get(); }
  unsigned terminal_modes_before() const { return modes_before_; }  // c_lflag before it began

 private:
  void spawn(const std::vector<std::string>& words, const RunOptions& options, int in, int out,
             int err);
  pid_t pid_ = -1;
  base::Fd in_, out_, err_, terminal_;
  unsigned modes_before_ = 0;
  std::string read_;
};

}  // namespace moorage::test
