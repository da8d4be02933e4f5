// Copies trees between the local file system and a workspace through the file API, as the calling
// user. Names and links from a sandbox are untrusted: each directory is entered by its descriptor,
// without following links, so that nothing is written outside the destination. Keeps permission
// bits, times of modification and holes. Drops and names set-id and sticky bits; skips and counts
// sockets, pipes and devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/client/remote_path.h"
#include "cli/local/copied_file.h"

namespace moorage::cli {

struct CopyTally {
  int64_t files = 0, directories = 0, links = 0, skipped = 0;
  uint64_t bytes = 0;
  int64_t repositories = 0;  // copies of .git, without configuration and hooks (git_copy.h)
  int64_t incomplete = 0;    // of those: objects that they borrow inside did not come along
  int64_t without_index = 0;
  int64_t git_links = 0;  // .git files of worktrees and submodules, which are left out
  std::vector<std::string> special_modes = {};  // paths that lost set-id or sticky bits
};

// The remote path, file or directory, becomes the local path `to`.
CopyTally copy_out(RemoteFiles& files, const std::string& from, const std::string& to);
// The local path, file or directory, becomes the remote path `to`. `link`: of a link as `from`.
CopyTally copy_in(RemoteFiles& files, const std::string& from, const std::string& to,
                  Links link = Links::followed);

}  // namespace moorage::cli
