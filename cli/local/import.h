// `--from DIR`: streams a local directory to the daemon as two commits in a git bundle: HEAD, and
// the changed and untracked files. Git runs as the calling user: the daemon never opens a client's
// path. The user's repository is only read; the new index and objects are in a temporary directory.
#pragma once

#include <string>

#include "cli/client/context.h"
#include "cli/views/progress.h"

namespace moorage::cli {

struct ImportedTree {
  std::string repo;         // the daemon's id of the import
  std::string head_commit;  // the commit that is checked out
  std::string work_commit;  // its child: with changes and untracked files, without ignored ones
};

ImportedTree import_directory(Context& context, const std::string& directory, Progress& progress);

}  // namespace moorage::cli
