// Moves a stopped workspace to cold storage, and back for an unarchive or a start. Its files are
// removed only after the archive was read back from its disk and compared; the archive is removed
// only after the files are synced and the row is `ready`. So at least one of the two is always
// complete, and the row says which; settle_archive (store.h) cleans up after a crash. Journals stay
// in the store (for history and logs), and are also in the archive.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "workspace/chain/integrity.h"
#include "workspace/context/context.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

// Both need the workspace's lock.
class ColdStorage {
 public:
  ColdStorage(Context& context, Repositories& repositories, IntegrityCheck& integrity)
      : context_(context), repositories_(repositories), integrity_(integrity) {}

  // Needs a directory that is writable (store.h). Returns the bytes of layers freed.
  uint64_t put_away(const state_db::WorkspaceRow& row, const std::string& reason,
                    const JoinKey& join, const Progress& progress);
  void bring_back(const state_db::WorkspaceRow& row, const JoinKey& join = {});

 private:
  Context& context_;
  Repositories& repositories_;
  IntegrityCheck& integrity_;
};

// Frozen layers used only by archived workspaces. The archives of all of these contain them, so
// their files are removed: `cold`. The row is marked first, then the files are removed; on return
// the files are made and synced before the row is changed. So files in the place of a cold layer
// are never valid: an interrupted removal or return left them.
//
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
