// Creates a sandbox from a row, in the steps that a start and a move share: a start includes the
// workspace, a move creates it on standby without. The caller holds the workspace's lock, writes
// the intent before begin(), and cleans up after a failed step.
#pragma once

#include <functional>
#include <memory>

#include "backends/backend.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/watcher.h"

namespace moorage::workspace {

using LiveSandboxPtr = std::shared_ptr<const LiveSandbox>;
using Also = std::function<void()>;  // writes in the same commit

// Throws if the backend of that place would refuse to start there.
void check_backend_accepts(Context& context, const state_db::Place& place,
                           const backends::Limits& limits);

class SandboxStart {
 public:
  SandboxStart(Context& context, ExecWatcher& watcher) : context_(context), watcher_(watcher) {}

  // Describes the sandbox for this workspace; throws if the host's rules or its backend refuse.
  state_db::NewSandbox plan(const state_db::WorkspaceRow& row);
  // Returns when its warden answers. Without mounts it has only empty places for them.
  LiveSandbox begin(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox,
                    const layers::ActiveMounts* mounts);
  // Records the outcome with its mounts. `also` runs in the same commit.
  LiveSandboxPtr finish(const state_db::SandboxRow& sandbox, LiveSandbox begun,
                        const layers::ActiveMounts& mounts, const Also& also = {});
  void take_up(const LiveSandboxPtr& running);  // makes it available to callers

 private:
  Context& context_;
  ExecWatcher& watcher_;
};

}  // namespace moorage::workspace
