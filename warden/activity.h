// Whether what a command left behind still does something: it writes its last words within a moment
// (`tee` that meets the end of its input) or sleeps for an hour, and only the kernel knows which. A
// look reads /proc: a thread that runs or may run, or that ran since the look before, is busy. Two
// looks without any such thread mean that nothing happens until somebody outside wakes one of them.
// Looked at are the descendants of `root` that started with the command or later: of a keeper
// exactly its own, of the warden also those of commands that were started meanwhile.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>

namespace moorage::warden {

class Activity {
 public:
  Activity(pid_t root, int64_t since_boot_ns);  // CLOCK_BOOTTIME

  bool look();  // true: busy, or too many to tell
  // Processor time that they used between the first look and the last one; a machine that is busy
  // elsewhere adds nothing.
  int64_t spent_ns() const { return spent_ns_; }

 private:
  struct Ran {
    int64_t ns = 0;
    int64_t slices = 0;
    bool operator==(const Ran&) const = default;
  };
  using Threads = std::unordered_map<pid_t, Ran>;
  struct Process {
    pid_t parent = 0;
    int64_t threads = 0;
    char state = 'X';
  };
  using Processes = std::unordered_map<pid_t, Process>;
  Processes young_processes() const;
  bool is_below_root(const Processes& processes, pid_t pid) const;
  static bool add_threads(pid_t pid, int64_t count, char state, Threads& seen);
  static Ran ran(const char* path);

  pid_t root_;
  int64_t since_ticks_;
  int64_t spent_ns_ = 0;
  bool looked_ = false;
  Threads before_;
};

int64_t boot_ns();

}  // namespace moorage::warden
