// Removes unused layers, and settles snapshots that a crash interrupted.
#pragma once

#include "state_db/tables/snapshots.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

// Removes layers that no workspace or snapshot uses, directly or below another layer: first from
// disk, then their rows. Only a merge in progress can still come into use; its maker locks it. A
// locked layer stays, with the layers below it. Needs no lock from the caller.
void collect_layers(Context& context);
// Releases layers that a merge replaced, if no older mount of them can remain.
void release_replaced_layers(Context& context);

// Settles an interrupted snapshot by the table in state_db/recovery_table.h. The caller holds the
// lock of its workspace, and the sandbox is adopted or gone.
void settle_snapshot(Context& context, const state_db::SnapshotRow& row);

}  // namespace moorage::workspace
