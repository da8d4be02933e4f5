// Whether the processes left by a command are still active: they may write their last output in a
// moment (`tee` at the end of its input) or sleep for an hour, and only the kernel knows which. A
// check reads /proc: a thread that is running, runnable, or ran since the last check is busy. Two
// checks without such a thread mean that nothing happens until someone outside wakes one. Covers
// the descendants of `root` that started with the command or later: for a subreaper exactly its
// own, for the warden also those of commands started meanwhile.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>

#include "warden/process_tree.h"

namespace moorage::warden {

class Activity {
 public:
  Activity(pid_t root, int64_t since_boot_ns);  // CLOCK_BOOTTIME

  bool measure();  // true: busy, or too many to decide
  // Processor time they used between the first and the last check; a machine busy elsewhere adds
  // nothing.
  int64_t spent_ns() const { return spent_ns_; }

 private:
  struct Ran {
    int64_t ns = 0;
    int64_t slices = 0;
    bool operator==(const Ran&) const = default;
  };
  using Threads = std::unordered_map<pid_t, Ran>;
  using Processes = std::unordered_map<pid_t, ProcessStat>;
  Processes young_processes() const;
  bool is_below_root(const Processes& processes, pid_t pid) const;
  static bool add_threads(pid_t pid, int64_t count, char state, Threads& seen);
  static Ran ran(const char* path);

  pid_t root_;
  int64_t since_ticks_;
  int64_t spent_ns_ = 0;
  bool measured_ = false;
  Threads before_;
};

int64_t boot_ns();

}  // namespace moorage::warden
