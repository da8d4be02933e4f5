// How much processes have written into files, by the kernel's count (proc(5), /proc/PID/io): pages
// of files that they made dirty. A process that was waited for is counted on in its parent, so the
// sum of a tree of processes never falls while its root lives. Blind to what takes space without a
// written page: fallocate, empty files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace moorage::base {

// Of one process and the children that it waited for; 0 when it is gone or cannot be asked.
uint64_t written_bytes(pid_t process);
// The process and all that descend from it, at most so many.
std::vector<pid_t> process_tree(pid_t root, size_t at_most);

}  // namespace moorage::base
