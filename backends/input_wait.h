// Whether a command waits for input, according to the kernel: one of its processes is blocked in a
// call that returns only when its standard input is ready, and none of them is running. Standard
// input is recognised by its other end: a pipe or terminal held by the warden. Programs that poll
// several descriptors (or use epoll) are not detected. Reads the host's /proc, never a file of the
// sandbox; a lie affects only the liar's own line.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace moorage::backends {

// In the form of /proc/PID/fd, "pipe:[4711]", and a terminal's number: "0" of "/dev/pts/0".
struct InputEnds {
  std::set<std::string> pipes;
  std::set<std::string> terminals;
};
InputEnds input_ends(pid_t warden);  // empty when it is gone

bool waits_for_input(const std::vector<pid_t>& processes, const InputEnds& ends);

}  // namespace moorage::backends
