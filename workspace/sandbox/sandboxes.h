// Starts, stops and clears the sandbox of a workspace by its row. Who may ask, and under which
// lease, is decided above. Callers hold the workspace's lock.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "workspace/chain/chains.h"
#include "workspace/chain/sealing.h"
#include "workspace/exec/pre_stop.h"
#include "workspace/sandbox/start.h"

namespace moorage::workspace {

class Sandboxes : private ExecListener {
 public:
  Sandboxes(Context& context, ExecWatcher& watcher, PreStop& pre_stop, SandboxStart& starts,
            Chains& chains, Sealing& sealing, IntegrityCheck& integrity);

  LiveSandboxPtr start(const state_db::WorkspaceRow& row, const Also& also = {});
  // `begin` runs in the transaction that stops new commands; it may throw to prevent the stop.
  // Returns the row that it stopped; empty: there was nothing to stop, or it was lost before.
  std::optional<state_db::WorkspaceRow> stop(const state_db::WorkspaceRow& present,
                                             const std::string& reason,
                                             const std::function<void()>& begin = {});
  // Kills the rest of a sandbox and closes its row, in any state.
  void clear(const state_db::SandboxRow& sandbox, const std::string& reason);
  void note_lost(const state_db::SandboxRow& sandbox, const std::string& reason);  // its row only

 private:
  bool sandbox_died(base::WorkspaceId workspace, base::SandboxId sandbox) override;
  bool clear_dead(base::WorkspaceId workspace, base::SandboxId sandbox);  // false: busy

  Context& context_;
  ExecWatcher& watcher_;
  PreStop& pre_stop_;
  SandboxStart& starts_;
  Chains& chains_;
  Sealing& sealing_;
  IntegrityCheck& integrity_;
  ExecListeners::Handle listens_;  // last member: its calls use the others
};

}  // namespace moorage::workspace
