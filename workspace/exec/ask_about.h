// Asks what became of a command whose start got no answer, or that a killed daemon left running.
#pragma once

#include <chrono>
#include <vector>

#include "state_db/recovery_table.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

// For each command `known`: its warden runs it; `unknown`: it has ended, and its end is in the
// journal, or it never began; or `silent`: on another machine, and the rest of its journal may
// still come, so ask again. Throws if nobody answers.
std::vector<state_db::ExecSeen> ask_about(LiveSandboxes& live, const LiveSandbox& running,
                                          const std::vector<base::ExecId>& execs,
                                          std::chrono::milliseconds patience);

}  // namespace moorage::workspace
