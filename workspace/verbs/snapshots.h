// Verbs on states of a workspace: snapshot, restore, drop, fork, promote. restore and promote first
// take a snapshot of the current state, then continue from another one, so neither loses anything.
// workspace/snapshot/taker.h takes them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "state_db/tables/snapshots.h"
#include "workspace/access/admission.h"
#include "workspace/snapshot/taker.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

struct SnapshotRequest {
  std::string name;         // 1-63 of [a-z0-9-], or empty
  std::string external_id;  // at most 256 bytes; another program's name for it
  std::string idempotency_key;
};

struct RestoreRequest {
  std::string snapshot;  // sn_N, or its name
  bool kill = false;     // end running processes for it
};

struct UndoRequest {
  std::string exec;  // ex_N; empty: the last one
  bool kill = false;
};

struct ForkRequest {
  std::string snapshot;            // sn_N, or its name; empty: the current state
  std::vector<std::string> names;  // of the forks; empty: NAME-1, NAME-2...
  std::string stem;                // of such names, instead of NAME
  uint32_t count = 1;              // 1 to kMaxForks; names, if any, decide instead
  std::map<std::string, std::string> labels;
  std::string idempotency_key;
};
inline constexpr uint32_t kMaxForks = 100;

class Snapshots {
 public:
  Snapshots(Context& context, Leases& leases, PreStop& pre_stop, Chains& chains,
            SnapshotTaker& taker, StartStop& start_stop, Views& views, Admission& admission)
      : context_(context),
        leases_(leases),
        pre_stop_(pre_stop),
        chains_(chains),
        taker_(taker),
        start_stop_(start_stop),
        views_(views),
        admission_(admission) {}

  state_db::SnapshotRow take(const Caller& caller, const std::string& name,
                             const SnapshotRequest& request);
  std::vector<state_db::SnapshotRow> list(const Caller& caller, const std::string& name);
  state_db::SnapshotRow show(const Caller& caller, const std::string& name,
                             const std::string& snapshot);
  void drop(const Caller& caller, const std::string& name, const std::string& snapshot);
  // conflict: a process runs in it or holds its files, and `kill` is unset; names the processes.
  WorkspaceView restore(const Caller& caller, const std::string& name,
                        const RestoreRequest& request);
  // Returns to the state before a command, if its policy keeps snapshots before commands; without a
  // name, before the last command that was not undone.
  WorkspaceView undo(const Caller& caller, const std::string& name, const UndoRequest& request);
  // Creates all of them or none.
  std::vector<WorkspaceView> fork(const Caller& caller, const std::string& name,
                                  const ForkRequest& request);
  struct Lineage {
    std::vector<state_db::WorkspaceRow> workspaces;  // by id; only those visible to the caller
    std::vector<state_db::SnapshotRow> snapshots;    // their kept ones, by id
  };
  Lineage tree(const Caller& caller, const std::string& name);
  // The origin of the fork `name` continues from the fork's current state. Returns its view.
  WorkspaceView promote(const Caller& caller, const std::string& name, bool kill);

 private:
  void go_on_from(const state_db::WorkspaceRow& row, const state_db::NewSnapshot& wanted, bool kill,
                  const std::string& reason);
  void refuse_busy(const state_db::WorkspaceRow& row);
  void bring_to_rest(const state_db::WorkspaceRow& row, bool kill, const std::string& reason);
  std::optional<state_db::SnapshotRow> find_made(const state_db::NewSnapshot& wanted);
  base::WorkspaceId fork_made_before(const state_db::NewWorkspace& fork);
  state_db::SnapshotRow find(const Caller& caller, const state_db::WorkspaceRow& row,
                             const std::string& snapshot);
  std::vector<state_db::NewWorkspace> planned_forks(const Caller& caller,
                                                    const state_db::WorkspaceRow& row,
                                                    const ForkRequest& request);

  Context& context_;
  Leases& leases_;
  PreStop& pre_stop_;
  Chains& chains_;
  SnapshotTaker& taker_;
  StartStop& start_stop_;
  Views& views_;
  Admission& admission_;
};

}  // namespace moorage::workspace
