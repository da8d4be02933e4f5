// Ids that must not change with the configuration: those of living sandboxes, and the owners of
// files on disk.
#pragma once

#include "workspace/context/context.h"

namespace moorage::workspace {

// Rows of an earlier release lack their ids, and the configuration may have changed with the
// release: take the ids from their process 1. Call it before creating any sandbox.
void record_ids(Context& context);

// Records the ids of a new store's files, and refuses a store with other ids, whose files would
// have wrong owners. For a store of an earlier release, it reads the ids from the files.
void require_disk_ids(state_db::Store& store, const Options& options);

}  // namespace moorage::workspace
