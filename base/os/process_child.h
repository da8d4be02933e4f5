// What a child of run_process does between fork and exec. Another thread of the parent may have
// held the allocator's lock at the fork, so everything is prepared before it and the child makes
// only async-signal-safe calls (signal-safety(7)). Private to process.cc.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace moorage::base {

enum class ChildStep : int { redirect, close_others, directory, limits, exec };

// Follows "start X: ", for example "change directory".
std::string_view child_step_name(ChildStep step);

// The failure in the child, as it arrives through a pipe.
struct ChildFailure {
  ChildStep step;
  int error_number;
};

struct ChildPlan {
  const char* directory = nullptr;
  int streams[3] = {-1, -1, -1};  // all above 2, so that no dup2 overwrites another
  const std::vector<int>* inherit_fds = nullptr;
  uint64_t max_memory_bytes = 0;
  uint64_t max_file_bytes = 0;
  int failure_fd = -1;

  // Its own process group, default signals, the streams, the directory, the limits.
  void apply() const;
  [[noreturn]] void fail(ChildStep step, int error_number) const;

 private:
  void limit(int resource, uint64_t value) const;
};

}  // namespace moorage::base
