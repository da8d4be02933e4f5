// Starts a command that has its record, and ends it: makes its journal, has it watched, and sends
// the request to its warden. Who may run it, and the record, are its caller's. Keeps no state.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/git_identity.h"
#include "state_db/tables/workspaces.h"
#include "workspace/exec/watcher.h"

namespace moorage::workspace {

struct LaunchOptions {
  std::optional<std::pair<uint32_t, uint32_t>> terminal{};  // columns, rows
  bool sync = false;                          // make files durable before reporting the end
  std::optional<base::GitIdentity> author{};  // of its commits, if the client named one
};

class ExecLauncher {
 public:
  ExecLauncher(Context& context, ExecWatcher& watcher) : context_(context), watcher_(watcher) {}

  // If it throws, call settle_failed_launch.
  void launch(const state_db::ExecRow& exec, const state_db::WorkspaceRow& workspace,
              const LiveSandbox& running, const LaunchOptions& options = {});
  // The command may be running although no answer arrived. Only the warden knows; if it cannot be
  // asked now, the watcher keeps the question (ExecWatcher::add_unconfirmed).
  void settle_failed_launch(const state_db::ExecRow& exec, const LiveSandbox& running,
                            const base::Error& error);
  // Sends TERM now, and KILL to the whole group after the grace period.
  void end_softly(base::ExecId id, const LiveSandbox& running);

 private:
  Context& context_;
  ExecWatcher& watcher_;
};

}  // namespace moorage::workspace
