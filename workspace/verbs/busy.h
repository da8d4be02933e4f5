// The commands running in a workspace that is about to lose its sandbox. Hooks are left out: a stop
// waits for those.
#pragma once

#include <string>
#include <vector>

#include "workspace/context/context.h"
#include "workspace/verbs/requests.h"

namespace moorage::workspace {

std::vector<state_db::ExecRow> commands_of(state_db::Store& store, base::WorkspaceId id);
// "ex_3 (npm test), ex_4 (make) run"
std::string name_commands(const std::vector<state_db::ExecRow>& execs);

// The commands to end. Throws Waiting while the caller waits for them, then conflict with their
// names (at once if the caller did not ask to wait).
std::vector<base::ExecId> make_way(state_db::Store& store, const Caller& caller,
                                   const state_db::WorkspaceRow& row, const BusyRule& rule);

}  // namespace moorage::workspace
