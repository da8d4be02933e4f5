#include "workspace/context/ready.h"

#include <string>

#include "base/error.h"

namespace moorage::workspace {

void require_ready(const state_db::WorkspaceRow& row) {
  using state_db::WorkspaceState;
  if (row.state == WorkspaceState::ready) return;
  std::string hint = "wait until that ends: moorage show " + row.name;
  if (row.state == WorkspaceState::failed) hint = "create another; moorage events shows why";
  if (row.state == WorkspaceState::deleted) hint = "moorage undelete " + row.id.str();
  if (row.state == WorkspaceState::archived) {
    hint = "moorage unarchive " + row.name + ", or start it, which unarchives it first";
  }
  throw base::Error(base::Code::conflict,
                    row.name + " is " + std::string(state_db::state_name(row.state)), hint);
}

}  // namespace moorage::workspace
