// The work of a local checkout that its owner uploaded: commits of an imported repository.
#pragma once

#include <string>

#include "base/ids.h"

namespace moorage::workspace {

struct ImportedWork {
  base::RepoId repo;
  std::string head_commit;
  std::string work_commit;  // child of head: uncommitted and untracked files; may equal head_commit

  std::string subject() const;  // what its upload joins to its key
  static ImportedWork parse(const std::string& subject);
};

}  // namespace moorage::workspace
