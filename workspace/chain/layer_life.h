// Makes layers, removes unused ones, and settles what a crash or a failure left behind: interrupted
// snapshots, and workspaces whose create, fork or import failed.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/tables/snapshots.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

// Makes a new layer over another one: its directories, with the root attributes of those below. The
// kernel shows the root of the topmost layer, so without this /workspace and the home would lose
// mode, owner, times and attributes with every snapshot. The layer must have its row. Idempotent
// while nobody has written to the layer.
void make_layer(Context& context, base::LayerId layer);
// The same for several, synced so that they survive a power cut: otherwise only a row would show
// that a layer was made and then lost.
void make_layers(Context& context, const std::vector<base::LayerId>& layers);

// Removes layers that no workspace or snapshot uses, directly or below another layer: first from
// disk, then their rows. Only a merge in progress can still come into use; its maker locks it. A
// locked layer stays, with the layers below it. Needs no lock from the caller.
void collect_layers(Context& context);
// Releases layers that a merge replaced, if no older mount of them can remain.
void release_replaced_layers(Context& context);

// Settles an interrupted snapshot by the table in state_db/recovery_table.h. The caller holds the
// lock of its workspace, and the sandbox is adopted or gone.
void settle_snapshot(Context& context, const state_db::SnapshotRow& row);

// Undoes the creation of a workspace: marks it failed, then removes its files. Caller holds its
// lock.
void abandon(Context& context, const state_db::WorkspaceRow& row, const std::string& reason);
void remove_remains(Context& context, const state_db::WorkspaceRow& row);  // the files only

}  // namespace moorage::workspace
