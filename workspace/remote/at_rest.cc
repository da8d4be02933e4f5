#include "workspace/remote/at_rest.h"

#include "backends/registry.h"
#include "base/error.h"
#include "state_db/tables/sandboxes.h"

namespace moorage::workspace {

void require_at_rest(Context& context, base::WorkspaceId workspace) {
  const auto row = state_db::SandboxTable(context.store).live(workspace);
  if (!row || (row->state != state_db::SandboxState::running &&
               row->state != state_db::SandboxState::frozen))
    return;
  auto* backend = context.backends.find(row->backend);
  if (!backend || !backend->known_capabilities().remote) return;
  throw Error(Code::unavailable,
              "its files cannot be changed now: the link to the other machine is being replaced",
              "nothing was changed; try again");
}

}  // namespace moorage::workspace
