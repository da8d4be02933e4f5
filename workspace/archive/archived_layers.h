// The layers of a workspace that go into an archive: the writable one, those of its kept snapshots,
// and everything below these. A snapshot may lie beside the chain: a copy of a live layer, or one
// that a restore left behind.
#pragma once

#include <vector>

#include "repo_cache/base_tree.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "state_db/tables/workspaces.h"
#include "workspace/archive/file.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

struct ArchivedLayers {
  // The layer that becomes writable first, each before its parent.
  std::vector<state_db::LayerRow> layers;
  std::vector<state_db::SnapshotRow> snapshots;  // oldest first
  base::SnapshotId stands_on{};
};

enum class WithSnapshots { yes, no };
// The current state of a stopped workspace.
ArchivedLayers archived_layers(Context& context, const state_db::WorkspaceRow& row,
                               WithSnapshots with);
// The state when `snapshot` was taken for an export. Leaves out that snapshot and those of other
// exports: they are dropped when the exports end.
ArchivedLayers archived_layers(Context& context, const state_db::SnapshotRow& snapshot,
                               WithSnapshots with);

// Fills in layers, snapshots and the current position.
void describe(const ArchivedLayers& archived, Manifest& manifest);
std::vector<packs::LayerPart> parts_of(Context& context, const ArchivedLayers& archived,
                                       const repo_cache::BaseTreePlaces& base);

}  // namespace moorage::workspace
