// Which layers of a workspace an archive has: the writable one, what its kept snapshots are, and
// all that these stand on. A snapshot may lie beside the chain: a copy of a live layer, or what a
// restore left behind.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "repo_cache/base_tree.h"
#include "state_db/layers.h"
#include "state_db/snapshots.h"
#include "state_db/workspaces.h"
#include "workspace/archive_file.h"
#include "workspace/context.h"

namespace moorage::workspace {

struct ArchivedLayers {
  // The one that becomes writable first, each before what it stands on.
  std::vector<state_db::LayerRow> layers;
  std::vector<state_db::SnapshotRow> snapshots;  // oldest first
  base::SnapshotId stands_on{};
};

enum class WithSnapshots { yes, no };
// As it is now, at rest.
ArchivedLayers archived_layers(Context& context, const state_db::WorkspaceRow& row,
                               WithSnapshots with);
// As it was when `snapshot` was taken for an export. That one is left out, and those of other
// exports: they go with them.
ArchivedLayers archived_layers(Context& context, const state_db::SnapshotRow& snapshot,
                               WithSnapshots with);

// Fills in layers, snapshots and where it stands.
void describe(const ArchivedLayers& archived, Manifest& manifest);
std::vector<LayerPart> parts_of(Context& context, const ArchivedLayers& archived,
                                const repo_cache::BaseTreePlaces& base);

}  // namespace moorage::workspace
