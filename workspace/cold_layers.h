// Frozen layers that only archived workspaces stand on. They are in the archives of all of these,
// and go from the disk: `cold`. First the row says so, then the files go; on the way back the files
// are made and synced, and then the row says so. So what lies in the place of a cold layer is never
// taken for the layer: it is what a removal or a return left that was cut.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "state_db/workspaces.h"
#include "workspace/context.h"

namespace moorage::workspace {

// Removes the files of all of them. Bytes that this gave back. A layer stays where the archive of
// one of its workspaces is not there, where the writable layer of one still lies beside its archive
// (archive_store.h), and where somebody holds it. Caller needs no lock.
uint64_t cool_layers(Context& context);

// What archiving a workspace would give back, from rows alone.
struct LayerUse {
  uint64_t own_bytes = 0;  // of frozen layers that are its alone, or else of archived ones
  uint64_t all_bytes = 0;  // of all that would be in its archive; the writable one is in neither
  std::optional<uint64_t> writable_bytes;  // of the writable one; empty: never measured
};
std::map<base::WorkspaceId, LayerUse> use_of_frozen_layers(Context& context);

}  // namespace moorage::workspace
