// Callbacks of other parts for the verbs on workspaces: set once, before the first verb. All run
// with the workspace's lock held, except `admit`, `before_exec` and `require_within`.
#pragma once

#include <functional>
#include <string>

#include "base/ids.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/verbs/requests.h"

namespace moorage::workspace {

struct WorkspaceHooks {
  // Before a workspace is created on a repository; throws if no more are allowed.
  std::function<void(uint32_t owner_uid, base::RepoId repository)> admit;
  // Applies its policy: a snapshot before a command; after a stop a snapshot and fewer layers.
  std::function<base::SnapshotId(const state_db::WorkspaceRow&)> before_exec;
  std::function<void(const state_db::WorkspaceRow&)> after_stop;
  // Before a command that does not only remove files: throws if it is far over its disk limit.
  std::function<void(const state_db::WorkspaceRow&)> require_within;
  // Before a mount: merges layers if they are too many for one mount.
  std::function<void(const state_db::WorkspaceRow&)> flatten;
};

}  // namespace moorage::workspace
