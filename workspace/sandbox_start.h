// Makes a sandbox from a row, in the steps that a start and a move have in common: a start makes it
// with the workspace in it, a move on standby, without. Who calls holds the workspace's lock,
// writes the intent before begin(), and clears what a failed step left.
#pragma once

#include <functional>
#include <memory>

#include "backends/backend.h"
#include "state_db/sandboxes.h"
#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/exec_watcher.h"

namespace moorage::workspace {

using RunningPtr = std::shared_ptr<const Running>;
using Also = std::function<void()>;  // what is written in the same commit

// Throws what the backend of that place would refuse to start there.
void check_place(Context& context, const state_db::Place& place, const backends::Limits& limits);

class SandboxStart {
 public:
  SandboxStart(Context& context, Active& active, ExecWatcher& watcher)
      : context_(context), active_(active), watcher_(watcher) {}

  // What a sandbox of this workspace is to be; throws what the host's rules or its backend refuse.
  state_db::NewSandbox plan(const state_db::WorkspaceRow& row);
  // Its warden answers. Without mounts it has places for them only.
  Running begin(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox,
                const ActiveMounts* mounts);
  // The outcome: what it has mounted is these. `also` is in the same commit.
  RunningPtr finish(const state_db::SandboxRow& sandbox, Running begun, const ActiveMounts& mounts,
                    const Also& also = {});
  void take_up(const RunningPtr& running);  // from now on it is asked for

 private:
  Context& context_;
  Active& active_;
  ExecWatcher& watcher_;
};

}  // namespace moorage::workspace
