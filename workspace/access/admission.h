// What verbs ask of upkeep before they act.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "state_db/tables/workspaces.h"

namespace moorage::workspace {

// Whether a user may create another workspace of a repository.
class Admission {
 public:
  virtual ~Admission() = default;
  // Throws resource_exhausted. Called without locks: it may collect first.
  virtual void admit(uint32_t owner_uid, base::RepoId repository) = 0;
};

class DiskLimits {
 public:
  virtual ~DiskLimits() = default;
  // Before a command that does more than remove files: throws if its disk limit is far exceeded.
  virtual void require_within(const state_db::WorkspaceRow& row) = 0;
};

}  // namespace moorage::workspace
