// The evidence of why an exec failed, beyond its exit code, and the one word derived from it
// (state_db/tables/exec_category.h). The kernel counts forks and packets for the whole sandbox
// since its start: the difference between two readings belongs to the exec or to another command
// running beside it. A name lookup that sends no packet, or a write into a full /tmp, leaves no
// trace and gets no word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backends/cgroups/exec_group.h"
#include "state_db/tables/execs.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

struct Refusals {
  uint64_t forks = 0;    // refused by the process limit
  uint64_t packets = 0;  // without a route: the sandbox has no network
};
Refusals count_refusals(const LiveSandbox& running, backends::ExecGroup& group);

// Packets without a route; the texts have the format of /proc/PID/net/snmp and snmp6.
uint64_t packets_without_route(const std::string& snmp, const std::string& snmp6);

struct ExecEvidence {
  bool stopping = false;  // its sandbox was being stopped when it ended
  bool out_of_memory = false;
  bool disk_full = false;
  bool disk_quota = false;  // the kernel counts the workspace at its disk limit
  Refusals refused{};       // while the exec ran
};

bool succeeded(const state_db::ExecOutcome& outcome);
// If outcome.category is set, it says why the command could not start.
std::optional<state_db::ExecCategory> categorize(const state_db::ExecOutcome& outcome,
                                                 const ExecEvidence& evidence);

}  // namespace moorage::workspace
