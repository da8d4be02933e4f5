// How many bytes processes have written into files, by the kernel's count (proc(5), /proc/PID/io):
// file pages that they dirtied. A reaped process counts on in its parent, so the sum of a process
// tree never falls while its root lives. Does not see space used without a written page: fallocate,
// empty files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace moorage::base {

// Of one process and its reaped children; 0 if it is gone or unreadable.
uint64_t written_bytes(pid_t process);
// The process and all its descendants, up to the limit.
std::vector<pid_t> process_tree(pid_t root, size_t at_most);

}  // namespace moorage::base
