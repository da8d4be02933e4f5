// Ids that must stay as they are while the configuration changes: those of living sandboxes, and
// those that own what is on disk.
#pragma once

#include "workspace/context.h"

namespace moorage::workspace {

// Rows of an earlier release do not have their ids, and the configuration may have changed with the
// release: they get those that their process 1 has. Before any sandbox is made.
void record_ids(Context& context);

// Notes in a new store to which ids its files belong, and refuses to open one of other ids: every
// file in it would be nobody's. Of a store of an earlier release the files are asked.
void require_disk_ids(state_db::Store& store, const Options& options);

}  // namespace moorage::workspace
