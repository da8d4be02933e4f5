// Frozen layers used only by archived workspaces. The archives of all of these contain them, so
// their files are removed: `cold`. The row is marked first, then the files are removed; on return
// the files are made and synced before the row is changed. So files in the place of a cold layer
// are never valid: an interrupted removal or return left them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

// Removes the files of all of them; returns the bytes freed. Keeps a layer if the archive of one of
// its workspaces is missing, if the writable layer of one still exists beside its archive
// (store.h), or if it is locked. Caller needs no lock.
uint64_t cool_layers(Context& context);

// The space that archiving a workspace would free, from rows alone.
struct LayerUse {
  uint64_t own_bytes = 0;  // frozen layers used by no other workspace that is not archived
  uint64_t all_bytes = 0;  // frozen layers that its archive would hold
  std::optional<uint64_t> writable_bytes{};  // the writable layer; nullopt: never measured
};
std::map<base::WorkspaceId, LayerUse> use_of_frozen_layers(Context& context);

// An archive also holds the base commit's objects, and is about half the size of its contents.
inline uint64_t likely_archive_bytes(uint64_t layer_bytes, uint64_t object_bytes) {
  return layer_bytes / 2 + object_bytes;
}

}  // namespace moorage::workspace
