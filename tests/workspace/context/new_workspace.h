// The minimum row of a workspace, in a repository made for it.
#pragma once

#include <string>

#include "state_db/store.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/workspaces.h"

namespace moorage::workspace {

inline state_db::NewWorkspace new_workspace(state_db::Store& store, const std::string& name,
                                            uint32_t owner_uid = 1000) {
  state_db::NewWorkspace wanted;
  wanted.name = name;
  wanted.owner_uid = owner_uid;
  wanted.repository =
      state_db::RepositoryTable(store).find_or_create({"https://x/a", "", "a"}).first;
  wanted.base_commit = std::string(40, 'a');
  return wanted;
}

}  // namespace moorage::workspace
