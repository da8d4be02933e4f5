// Gathers the evidence of why a command failed, beyond its exit code (decide_end.h). The kernel
// counts forks and packets for the whole sandbox since its start: the difference between two
// readings belongs to the exec or to another command running beside it. A name lookup that sends no
// packet, or a write into a full /tmp, leaves no trace.
#pragma once

#include <string>

#include "backends/cgroups/exec_group.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/decide_end.h"

namespace moorage::workspace {

// The refusals counted for a sandbox so far.
Refusals count_refusals(const LiveSandbox& running, backends::ExecGroup& group);

// Packets without a route; the texts have the format of /proc/PID/net/snmp and snmp6.
uint64_t packets_without_route(const std::string& snmp, const std::string& snmp6);

bool is_stopping(Context& context, base::SandboxId sandbox);

// For a command that has just ended; `before`: the refusals when it began. Removes its group, or
// ends a fork bomb that it left.
ExecEvidence gather_evidence(Context& context, const state_db::ExecRow& exec,
                             const Refusals& before, bool failed);

}  // namespace moorage::workspace
