// Gathers what goes into the archive of a workspace, for its cold storage or an export.
#pragma once

#include <string>

#include "workspace/archive/archived_layers.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

// Spools the repository's objects and the rows of the commands to unnamed files in `spool`. The
// files of the layers are only read when the archive is written.
ArchiveContents contents_of(Context& context, Repositories& repositories,
                            const state_db::WorkspaceRow& row, const ArchivedLayers& archived,
                            const std::string& spool);

// The engine's id of the image, so that another host knows which one it needs. Empty if the engine
// does not answer: that must not prevent archiving.
ManifestImage identify_image(Context& context, const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
