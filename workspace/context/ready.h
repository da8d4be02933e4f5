// A check before every effect on a workspace.
#pragma once

#include "state_db/tables/workspaces.h"

namespace moorage::workspace {

// Throws conflict for a workspace in another state, with a hint about the next step.
void require_ready(const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
