// Why an exec ended as it did, where more is known than its exit code or signal. One word, the same
// in the database, the API and the CLI; words are added and never change their meaning. No category
// is given by guessing: each says who knows it. The last four are told by what the kernel counted
// for the whole sandbox while the exec ran, and only of one that failed
// (workspace/exec_evidence.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace moorage::state_db {

enum class ExecCategory : uint8_t {
  timeout,         // its time limit; the warden
  cancelled,       // somebody asked for it; the row
  stopped,         // its workspace was stopped or deleted; the sandbox's row
  lost,            // its sandbox died, or the record of its end is damaged
  signal,          // a signal from inside or outside, see the field signal; wait(2)
  not_found,       // there is no such program; execve(2) of the warden
  not_executable,  // there is, and it cannot be run; execve(2)
  not_started,     // what comes before execve: directory, terminal, fork; or the warden was gone
  not_synced,      // it ended, but its files could not be made durable as was asked
  out_of_memory,   // the OOM killer took a process of it; its control group
  pids_limit,      // the limit of processes refused a fork; the sandbox's control group
  disk_full,       // no room in the store's file system at its end, or ended for it (disk_guard.h)
  network_denied,  // a packet had nowhere to go; the sandbox's network namespace
  disk_quota,      // its workspace had used up its disk limit; quota_watch.h, or the kernel's count
};

inline constexpr std::array<std::string_view, 14> kExecCategoryNames{
    "timeout",    "cancelled",      "stopped",        "lost",       "signal",
    "not_found",  "not_executable", "not_started",    "not_synced", "out_of_memory",
    "pids_limit", "disk_full",      "network_denied", "disk_quota"};

constexpr std::string_view category_name(ExecCategory category) {
  return kExecCategoryNames.at(static_cast<size_t>(category));
}

constexpr std::optional<ExecCategory> category_from_name(std::string_view name) {
  for (size_t i = 0; i < kExecCategoryNames.size(); ++i) {
    if (kExecCategoryNames[i] == name) return static_cast<ExecCategory>(i);
  }
  return std::nullopt;
}

}  // namespace moorage::state_db
