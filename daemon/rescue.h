// Rescue mode: the service of mooraged when state.db cannot be read. It locks and reads the store
// and changes nothing: no reconciler, no sandbox, no write. Root may list the workspaces found on
// the disk, export them one by one, and read a diagnosis with advice; every other request gets 503
// and one sentence. It ends with the process: a start with an intact state.db serves normally.
#pragma once

#include "daemon/settings.h"
#include "state_db/open_store.h"

namespace moorage::daemon {

// Serves until stopped; returns the process's exit status.
int serve_rescue(const state_db::Unreadable& trouble, const Settings& settings);

}  // namespace moorage::daemon
