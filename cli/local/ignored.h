// `create --from DIR --ignored`: the files that .gitignore files of a directory hide from git. They
// do not belong to the base: after the create, they are copied like `cp` copies. The files of the
// base are from 2001 inside, which is older than what was built of them here. Those that changed
// after an ignored file get their time, so that make builds the same as here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/client/remote_path.h"
#include "cli/local/git_calls.h"

namespace moorage::cli {

struct IgnoredFiles {
  std::string top;                 // the directory, absolute
  std::vector<std::string> paths;  // below it; one with a slash at its end is a whole directory
  std::vector<std::string> newer;  // files that come along anyway, newer than some ignored
  std::vector<std::string> directories;  // those that come along anyway
  std::vector<std::string> notes;        // for the user
};

// in_tree: a call of git whose index has all files that come along.
IgnoredFiles find_ignored(const std::string& top, const GitCall& in_tree);

struct CopiedIgnored {
  std::vector<std::string> missing;        // paths that did not come along completely
  std::string reason;                      // of the first
  int64_t skipped = 0;                     // pipes, sockets and devices
  std::vector<std::string> special_modes;  // paths that lost set-id or sticky bits
};
using CopyProgress = std::function<void(size_t percent, const std::string& path)>;
// Goes on after a path that fails, unless no other can succeed. `before` runs ahead of each path.
CopiedIgnored copy_ignored(RemoteFiles& files, const IgnoredFiles& ignored,
                           const CopyProgress& before);

}  // namespace moorage::cli
