// The commands that run in a workspace, for whoever is about to stop its sandbox. Hooks are none of
// them: a stop waits for those.
#pragma once

#include <string>
#include <vector>

#include "workspace/context.h"
#include "workspace/requests.h"

namespace moorage::workspace {

std::vector<state_db::ExecRow> commands_of(state_db::Store& store, base::WorkspaceId id);
// "ex_3 (npm test), ex_4 (make) run"
std::string name_commands(const std::vector<state_db::ExecRow>& execs);

// The commands that are to be ended. Throws Waiting while the caller waits for them, and conflict,
// which names them, where that is over or was not asked for.
std::vector<base::ExecId> make_way(state_db::Store& store, const Caller& caller,
                                   const state_db::WorkspaceRow& row, const BusyRule& rule);

}  // namespace moorage::workspace
