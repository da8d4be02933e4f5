// Gathers what goes into the archive of a workspace, for its cold storage or an export.
#pragma once

#include <string>
#include <vector>

#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "state_db/tables/workspaces.h"
#include "workspace/archive/file.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

// The layers of a workspace that go into an archive: the writable one, those of its kept snapshots,
// and everything below these. A snapshot may lie beside the chain: a copy of a live layer, or one
// that a restore left behind.
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

// Spools the repository's objects and the rows of the commands to unnamed files in `spool`. The
// files of the layers are only read when the archive is written.
ArchiveContents contents_of(Context& context, Repositories& repositories,
                            const state_db::WorkspaceRow& row, const ArchivedLayers& archived,
                            const std::string& spool);

// The engine's id of the image, so that another host knows which one it needs. Empty if the engine
// does not answer: that must not prevent archiving.
ManifestImage identify_image(Context& context, const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
