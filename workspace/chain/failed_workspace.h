// Undoes the creation of a workspace, by a create, a fork or an import.
#pragma once

#include <string>

#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

// Marks it failed, then removes its files. Caller holds its lock.
void abandon(Context& context, const state_db::WorkspaceRow& row, const std::string& reason);
void remove_remains(Context& context, const state_db::WorkspaceRow& row);  // the files only

}  // namespace moorage::workspace
