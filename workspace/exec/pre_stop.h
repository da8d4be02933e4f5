// pre_stop: the workspace's own command that runs before its sandbox stops. It is an ordinary
// command with a record and a journal, so a crash is settled as for any other: the sandbox keeps
// running, and the warden ends the command at its deadline. No thread waits for it: the verb throws
// Waiting, and is called again when the command has ended (workspace/context/waiters.h).
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "workspace/exec/launch.h"

namespace moorage::workspace {

class PreStop {
 public:
  PreStop(Context& context, ExecWatcher& watcher)
      : context_(context), launcher_(context, watcher) {}

  // Starts it if the workspace has one and a sandbox, and throws Waiting until it ends; then
  // returns its failure, which is also an event. Caller holds the workspace's lock.
  std::string run(const state_db::WorkspaceRow& row);
  void forget(base::SandboxId sandbox);  // it is gone, or its stop was given up

 private:
  // One that an earlier stop or an earlier daemon started, unless another command began after it
  // ended.
  std::optional<state_db::ExecRow> begun(const state_db::WorkspaceRow& row,
                                         const LiveSandbox& running);
  state_db::ExecRow begin(const state_db::WorkspaceRow& row, const LiveSandbox& running);

  Context& context_;
  ExecLauncher launcher_;
  std::mutex mutex_;
  // Only in memory: after a crash the next stop starts a new one.
  std::map<base::SandboxId, base::ExecId> begun_;
};

}  // namespace moorage::workspace
