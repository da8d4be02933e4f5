// Layers that nothing stands on any more, and snapshots that a crash cut.
#pragma once

#include "state_db/snapshots.h"
#include "workspace/active.h"
#include "workspace/context.h"

namespace moorage::workspace {

// Removes the layers that are no workspace's and no snapshot's, and below none of theirs: first
// from the disk, then their rows. Of these only a merge that is being made can come into use; it is
// locked by who makes it. One that somebody holds is left to him, with what it stands on. Caller
// needs no lock.
void collect_layers(Context& context);
// Gives up what merges took the place of, where no mount of before can be left.
void release_replaced_layers(Context& context, Active& active);

// One that was cut, as recovery_table.h says. Under its workspace's lock, with the sandbox adopted
// or gone.
void settle_snapshot(Context& context, Active& active, const state_db::SnapshotRow& row);

}  // namespace moorage::workspace
