// Rescue mode: what mooraged serves when state.db cannot be read. The store is locked and looked
// at, nothing in it is changed: no reconciler, no sandbox, no write. Root may list the workspaces
// by what the disk has, save them one by one, and is told what is wrong and what can be done; every
// other request is refused with 503 and one sentence. It ends with the process: a start with a
// sound state.db serves as ever.
#pragma once

#include <string>

#include "daemon/router.h"
#include "daemon/server.h"
#include "state_db/opening.h"
#include "workspace/rescue.h"

namespace moorage::daemon {

struct RescueSetup {
  workspace::RescueOptions rescue;
  std::string socket;
  std::string group;
  size_t threads = 1;  // a lane
  Limits limits;
};

// Until it is told to stop; the process's exit status.
int serve_rescue(const state_db::Unreadable& trouble, const RescueSetup& setup);

void add_rescue_routes(Router& router, workspace::Rescue& rescue,
                       const state_db::Unreadable& trouble, const RescueSetup& setup);
// In all other times its one route says that there is nothing to rescue.
void add_no_rescue_route(Router& router);

}  // namespace moorage::daemon
