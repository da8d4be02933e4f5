// What is known about why an exec failed, beyond its exit code, and the one word made of it
// (state_db/exec_category.h). Forks and packets are counted by the kernel for the whole sandbox
// since its start: what came between two looks happened while the exec ran, to it or to another
// command beside it. A name look-up that ends without a packet, or a write into a full /tmp, leaves
// no trace and gets no word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backends/exec_group.h"
#include "state_db/execs.h"
#include "workspace/active.h"

namespace moorage::workspace {

struct Refusals {
  uint64_t forks = 0;    // by the limit of processes
  uint64_t packets = 0;  // no route: a sandbox without a network has none
};
Refusals count_refusals(const Running& running, backends::ExecGroup& group);

// Packets without a route in texts as of /proc/PID/net/snmp and snmp6.
uint64_t packets_without_route(const std::string& snmp, const std::string& snmp6);

struct ExecEvidence {
  bool stopping = false;  // its sandbox was being stopped when it ended
  bool out_of_memory = false;
  bool disk_full = false;
  bool disk_quota = false;  // the kernel counts as much as the workspace may take
  Refusals refused{};       // while it ran
};

bool succeeded(const state_db::ExecOutcome& outcome);
// outcome.category, where it is set, is why it could not be started.
std::optional<state_db::ExecCategory> categorize(const state_db::ExecOutcome& outcome,
                                                 const ExecEvidence& evidence);

}  // namespace moorage::workspace
