// Starts, stops and clears the sandbox of a workspace by its row. Who may ask, and under which
// lease, is decided above. Callers hold the workspace's lock.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backends/backend.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/chain/chains.h"
#include "workspace/chain/sealing.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/pre_stop.h"
#include "workspace/exec/watcher.h"
#include "workspace/network/networks.h"
#include "workspace/remote/incoming_packs.h"

namespace moorage::workspace {

using LiveSandboxPtr = std::shared_ptr<const LiveSandbox>;
using Also = std::function<void()>;  // writes in the same commit

// Throws if the backend of that place would refuse to start there.
void check_backend_accepts(Context& context, const state_db::Place& place,
                           const backends::Limits& limits);

class Sandboxes : private ExecListener, private RefusalListener {
 public:
  Sandboxes(Context& context, IncomingPacks& incoming, ExecWatcher& watcher, Networks& networks,
            PreStop& pre_stop, Chains& chains, Sealing& sealing, IntegrityCheck& integrity)
      : context_(context),
        incoming_(incoming),
        watcher_(watcher),
        networks_(networks),
        pre_stop_(pre_stop),
        chains_(chains),
        sealing_(sealing),
        integrity_(integrity),
        listens_(watcher.listen(*this)),
        hears_(incoming.listen(*this)) {}

  LiveSandboxPtr start(const state_db::WorkspaceRow& row, const Also& also = {});

  // The steps that a start and a move share: a start includes the workspace, a move creates the
  // sandbox on standby without. The caller writes the intent before begin(), and cleans up after a
  // failed step.

  // Describes the sandbox for this workspace; throws if the host's rules or its backend refuse.
  state_db::NewSandbox plan(const state_db::WorkspaceRow& row);
  // Returns when its warden answers; without mounts it has only empty places for them. On another
  // machine: when that is reached and has the base tree, which the workspace is based on.
  LiveSandbox begin(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox,
                    const std::string& base_tree, const layers::ActiveMounts* mounts);
  // After the mounts are in place: sends the layers to another machine, whose warden then answers.
  // Nothing to do on this host.
  void send_layers(const LiveSandbox& begun, const layers::Chain& layers, uint32_t first_host_id);
  // Records the outcome with its mounts. `also` runs in the same commit.
  LiveSandboxPtr finish(const state_db::SandboxRow& sandbox, LiveSandbox begun,
                        const layers::ActiveMounts& mounts, const Also& also = {});
  void take_up(const LiveSandboxPtr& running);  // makes it available to callers
  void watch(const LiveSandbox& running);       // for its death, and its network

  // `begin` runs in the transaction that stops new commands; it may throw to prevent the stop.
  // Returns the row that it stopped; empty: there was nothing to stop, or it was lost before.
  struct StopRules {
    std::function<void()> begin{};
    bool gives_up = false;  // what only another machine has, if that cannot be reached
  };
  std::optional<state_db::WorkspaceRow> stop(const state_db::WorkspaceRow& present,
                                             const std::string& reason, const StopRules& rules);
  // Throws unavailable if it runs on another machine whose last changes cannot be fetched now.
  void require_fetched(const state_db::WorkspaceRow& row);
  // For one on another machine that lost its process here, the keeper of its link: gives it a new
  // one. `lost`: it does not run there any more, or never ran elsewhere; `later`: try again. Caller
  // holds the lock, or nobody else has begun yet.
  enum class Relinked { done, later, lost };
  Relinked relink(const state_db::SandboxRow& sandbox);
  // Why its machine is gone for good; empty: not known.
  std::string why_gone(const state_db::SandboxRow& sandbox) const;
  // Kills the rest of a sandbox and closes its row, in any state.
  void clear(const state_db::SandboxRow& sandbox, const std::string& reason);
  void note_lost(const state_db::SandboxRow& sandbox, const std::string& reason);  // its row only

 private:
  bool sandbox_died(base::WorkspaceId workspace, base::SandboxId sandbox) override;
  bool sandbox_refused(base::WorkspaceId workspace, base::SandboxId sandbox,
                       const std::string& why) override;
  // False: busy.
  bool clear_dead(base::WorkspaceId workspace, base::SandboxId sandbox, const std::string& refused);
  bool try_clear_dead(base::WorkspaceId workspace, base::SandboxId sandbox, const std::string& why);
  // One that runs, with the mounts in it.
  LiveSandboxPtr adopt(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox,
                       const base::ProcessIdentity& init);
  LiveSandboxPtr new_keeper(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox);
  bool outlives_keeper(const state_db::SandboxRow& sandbox) const;
  void hand_over_journals(const LiveSandbox& begun);
  void finish_files(const state_db::SandboxRow& sandbox);
  void stop_backend(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox,
                    bool gives_up);
  void take_back(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox);

  Context& context_;
  IncomingPacks& incoming_;
  ExecWatcher& watcher_;
  Networks& networks_;
  PreStop& pre_stop_;
  Chains& chains_;
  Sealing& sealing_;
  IntegrityCheck& integrity_;
  ExecListeners::Handle listens_;  // these two last: their calls use the others
  IncomingPacks::Listeners::Handle hears_;
};

}  // namespace moorage::workspace
