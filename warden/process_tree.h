// Processes as /proc shows them, and the descendants of one, found by parent. A process that forks
// during the walk may be missed: callers repeat until none is left.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moorage::warden {

// The contents of a small file; empty: it no longer exists.
std::string_view read_small(const char* path, std::span<char> buffer);
std::vector<pid_t> numbers_in(const char* path);  // that name entries: processes, threads

// From /proc/PID/stat, or a thread's (proc(5)).
struct ProcessStat {
  char state = 'X';  // gone
  pid_t parent = 0;
  int64_t threads = 0;
  int64_t started_ticks = 0;
};
ProcessStat read_stat(const char* path);

std::vector<pid_t> descendants(pid_t root);  // without root; parents before their children
// SIGKILL to every descendant (not to root), repeated until no new one is found.
void kill_descendants(pid_t root);

}  // namespace moorage::warden
