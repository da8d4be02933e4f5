// Moves a stopped workspace to cold storage, and back for an unarchive or a start. Its files are
// removed only after the archive was read back from its disk and compared; the archive is removed
// only after the files are synced and the row is `ready`. So at least one of the two is always
// complete, and the row says which; settle_archive (store.h) cleans up after a crash. Journals stay
// in the store (for history and logs), and are also in the archive.
#pragma once

#include <cstdint>
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

}  // namespace moorage::workspace
