// Why an exec ended, where more is known than the exit code or signal. One word, the same in the
// database, the API and the CLI; new words may be added, but none changes its meaning. No category
// is a guess: each names its source. The last four come from what the kernel counted for the whole
// sandbox while the exec ran, and apply only to an exec that failed
// (workspace/exec/decide_end.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "state_db/lifecycle.h"

namespace moorage::state_db {

enum class ExecCategory : uint8_t {
  timeout,         // its time limit; source: the warden
  cancelled,       // cancelled on request; source: the row
  stopped,         // its workspace was stopped or deleted; source: the sandbox's row
  lost,            // its sandbox died, or the record of its end is damaged
  signal,          // a signal from inside or outside, see the field signal; wait(2)
  not_found,       // the program does not exist; source: the warden's execve(2)
  not_executable,  // it exists but cannot be run; source: execve(2)
  not_started,     // failed before execve (directory, terminal, fork), or the warden died
  not_synced,      // it ended, but the requested sync of its files failed
  out_of_memory,   // the OOM killer ended one of its processes; source: its cgroup
  pids_limit,      // the process limit refused a fork; source: the sandbox's cgroup
  disk_full,       // the store's disk was full at its end, or it was ended for that
                   // (workspace/upkeep/disk_guard.h)
  network_denied,  // a packet had no route; source: the sandbox's network namespace
  disk_quota,  // its workspace reached its disk limit; source: workspace/upkeep/quota_watch.h or
               // the kernel
};

inline constexpr std::array<std::string_view, 14> kExecCategoryNames{
    "timeout",    "cancelled",      "stopped",        "lost",       "signal",
    "not_found",  "not_executable", "not_started",    "not_synced", "out_of_memory",
    "pids_limit", "disk_full",      "network_denied", "disk_quota"};

constexpr std::string_view category_name(ExecCategory category) {
  return to_word(kExecCategoryNames, category);
}
constexpr std::optional<ExecCategory> category_from_name(std::string_view name) {
  return from_word<ExecCategory>(kExecCategoryNames, name);
}

}  // namespace moorage::state_db
