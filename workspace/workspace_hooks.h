// What others do for the verbs on workspaces: set once, before the first verb. All are called with
// the workspace's lock held, but for `admit`, `before_exec`, `require_within`, `exec_ended`,
// `output_grew` and `off_host`.
#pragma once

#include <functional>
#include <string>

#include "base/ids.h"
#include "state_db/execs.h"
#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/requests.h"

namespace moorage::workspace {

struct WorkspaceHooks {
  // Before a workspace is made on a repository; throws when there must be none more.
  std::function<void(uint32_t owner_uid, base::RepoId repository)> admit;
  // An archived one that is to start comes back.
  std::function<void(const state_db::WorkspaceRow&)> bring_back;
  // Begins that command and answers its record.
  std::function<state_db::ExecRow(const state_db::WorkspaceRow&, const Running&)> pre_stop;
  // Whether this command began is not known: its warden could not be asked.
  std::function<void(const state_db::ExecRow&, const std::string& why)> start_unknown;
  // What its policy says: a snapshot before a command; one after a stop, and fewer layers.
  std::function<base::SnapshotId(const state_db::WorkspaceRow&)> before_exec;
  std::function<void(const state_db::WorkspaceRow&)> after_stop;
  // Before a command that does not only remove: throws when its disk limit is far behind it.
  std::function<void(const state_db::WorkspaceRow&)> require_within;
  // Its outcome is written. From the watcher's pool; must not throw.
  std::function<void(const state_db::ExecRow&)> exec_ended;
  std::function<void(const state_db::ExecRow&)> output_grew;  // after each command; does not throw
  // How far its copy elsewhere is, by its seal. Without the lock.
  std::function<std::optional<OffHostView>(base::WorkspaceId, const std::string& seal)> off_host;
  // Before a mount: fewer layers, if there are too many for one.
  std::function<void(const state_db::WorkspaceRow&)> flatten;
};

}  // namespace moorage::workspace
