// `--from DIR`: a local directory, with what is committed, changed and untracked, as two commits in
// a git bundle that is streamed to the daemon. Everything runs as the calling user with the user's
// git: the daemon never opens a client's path. The user's repository is only read: index and
// objects that come into being lie in a temporary directory.
#pragma once

#include <string>

#include "cli/context.h"
#include "cli/progress.h"

namespace moorage::cli {

struct ImportedTree {
  std::string repo;         // the daemon's id of the import
  std::string head_commit;  // what the directory has checked out
  std::string work_commit;  // its child: with changes and untracked files, without ignored ones
};

ImportedTree import_directory(Context& context, const std::string& directory, Progress& progress);

}  // namespace moorage::cli
