// Whether a command waits for input, by the kernel's word: one of its processes is blocked in a
// call that returns only when its standard input has something, and none of them is running.
// Standard input is known by its other end: a pipe or a terminal that the warden holds. Programs
// that watch it together with other things (epoll, more than one descriptor) are not told. /proc of
// the host is read, never a file of the sandbox; a lie costs only the liar's own line.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace moorage::backends {

// As /proc/PID/fd names them, "pipe:[4711]", and the number of a terminal: "0" of "/dev/pts/0".
struct InputEnds {
  std::set<std::string> pipes;
  std::set<std::string> terminals;
};
InputEnds input_ends(pid_t warden);  // empty when it is gone

bool waits_for_input(const std::vector<pid_t>& processes, const InputEnds& ends);

}  // namespace moorage::backends
