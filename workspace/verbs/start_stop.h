// Starts and stops sandboxes for clients and for the daemon itself: brings an archive back, runs
// pre_stop, ends commands, and takes the snapshots that a policy wants after a stop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "workspace/archive/cold_storage.h"
#include "workspace/changes/measurer.h"
#include "workspace/context/context.h"
#include "workspace/sandbox/sandboxes.h"
#include "workspace/snapshot/taker.h"
#include "workspace/verbs/requests.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

// The commands running in a workspace that is about to lose its sandbox. Hooks are left out: a stop
// waits for those.
std::vector<state_db::ExecRow> commands_of(state_db::Store& store, base::WorkspaceId id);
// "ex_3 (npm test), ex_4 (make) run"
std::string name_commands(const std::vector<state_db::ExecRow>& execs);

// The commands to end. Throws Waiting while the caller waits for them, then conflict with their
// names (at once if the caller did not ask to wait).
std::vector<base::ExecId> make_way(state_db::Store& store, const Caller& caller,
                                   const state_db::WorkspaceRow& row, const BusyRule& rule);

class StartStop {
 public:
  StartStop(Context& context, Leases& leases, ExecWatcher& watcher, PreStop& pre_stop,
            Sandboxes& sandboxes, SnapshotTaker& snapshots, ColdStorage& cold_storage,
            Measurer& measurer, Views& views)
      : context_(context),
        leases_(leases),
        watcher_(watcher),
        pre_stop_(pre_stop),
        sandboxes_(sandboxes),
        snapshots_(snapshots),
        cold_storage_(cold_storage),
        measurer_(measurer),
        views_(views) {}

  WorkspaceView start(const Caller& caller, const std::string& name);  // no-op if running
  // Runs its pre_stop (the view's notice has its failure), ends its execs, stops the sandbox,
  // syncs. No-op if stopped. All verbs that stop a sandbox throw Waiting.
  WorkspaceView stop(const Caller& caller, const std::string& name, const StopRequest& request);
  WorkspaceView resume(const std::string& subject);  // a stop whose daemon died

  LiveSandboxPtr ensure_running(const state_db::WorkspaceRow& row,
                                const Also& also = {});  // or starts
  void stop_sandbox(const state_db::WorkspaceRow& present, const std::string& reason,
                    const Sandboxes::StopRules& rules = {});
  // Throws unavailable if its last changes are on another machine that cannot be reached.
  void require_fetched(const state_db::WorkspaceRow& row) { sandboxes_.require_fetched(row); }
  // Stops the running sandbox for an internal reason. Conflict while a verb is running.
  void stop_because(base::WorkspaceId id, const std::string& reason);
  void refuse_busy(const state_db::WorkspaceRow& row);  // conflict if anything runs
  // Stops an unused one (else conflict), and waits for its files. Caller holds the lock.
  enum class Hook { run, skip };
  void bring_to_rest(const state_db::WorkspaceRow& row, const std::string& reason,
                     Hook hook = Hook::run);

 private:
  Context& context_;
  Leases& leases_;
  ExecWatcher& watcher_;
  PreStop& pre_stop_;
  Sandboxes& sandboxes_;
  SnapshotTaker& snapshots_;
  ColdStorage& cold_storage_;
  Measurer& measurer_;
  Views& views_;
};

}  // namespace moorage::workspace
