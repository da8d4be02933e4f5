// Limits of all commands of a sandbox together, by control groups of the machine (version 2 or 1),
// as far as we are root there and may make groups. Process limits (setrlimit) do not help: all
// sandboxes of a user share them. A limit that cannot be held does not fail a start: the answer
// says which hold.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moorage::outpost {

struct Limits {
  uint64_t memory_bytes = 0;  // 0: none, as in the next two
  uint64_t pids = 0;
  uint64_t cpu_thousandths = 0;  // of one processor
};

// Puts a process, before it starts others, into a group named after the sandbox's directory.
// Returns those of "memory", "pids" and "cpus" that hold.
std::vector<std::string> hold_limits(const std::string& sandbox, pid_t pid, const Limits& limits);
// Makes these groups earlier, and returns them with the place where a sandbox shows each, for
// programs that read their limits.
std::vector<std::pair<std::string, std::string>> make_groups(const std::string& sandbox,
                                                             const Limits& limits);
// After all its processes have ended.
void remove_limits(const std::string& sandbox);

}  // namespace moorage::outpost
