// Whether a user may create another workspace of a repository.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace moorage::workspace {

class Admission {
 public:
  virtual ~Admission() = default;
  // Throws resource_exhausted. Called without locks: it may collect first.
  virtual void admit(uint32_t owner_uid, base::RepoId repository) = 0;
};

}  // namespace moorage::workspace
