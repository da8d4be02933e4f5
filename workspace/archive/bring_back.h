// Restores an archived workspace, for an unarchive or a start. The archive is removed only after
// the files are synced and the row is `ready` (put_away.h).
#pragma once

#include "workspace/chain/integrity.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

class BringBack {
 public:
  BringBack(Context& context, Repositories& repositories, IntegrityCheck& integrity)
      : context_(context), repositories_(repositories), integrity_(integrity) {}

  void run(const state_db::WorkspaceRow& row, const JoinKey& join = {});  // needs its lock

 private:
  Context& context_;
  Repositories& repositories_;
  IntegrityCheck& integrity_;
};

}  // namespace moorage::workspace
