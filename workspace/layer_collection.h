// Layers that nothing stands on any more, and snapshots that a crash cut.
#pragma once

#include "state_db/snapshots.h"
#include "workspace/active.h"
#include "workspace/context.h"

namespace moorage::workspace {

// Removes the layers that no workspace, no snapshot and no other layer stands on: first from the
// disk, then their rows. Nothing comes to stand on such a layer, so no lock is wanted.
void collect_layers(Context& context);

// One that was cut, as recovery_table.h says. Under its workspace's lock, with the sandbox adopted
// or gone.
void settle_snapshot(Context& context, Active& active, const state_db::SnapshotRow& row);

}  // namespace moorage::workspace
