// Verbs on states of a workspace: snapshot, restore, drop, fork, promote. A snapshot is taken
//
//   at rest      its layer becomes the snapshot's, and a new one follows: the cost of a few
//                directories
//   by restack   the same while a sandbox runs, if nothing in it holds the mounts: restack.h
//   as a copy    while a sandbox runs: layer_copy.h; every process is frozen for the last pass only
//
// restore and promote are a snapshot of what is there now, after which the workspace goes on from
// another one: so neither loses anything. All of them write two commits (state_db/snapshots.h), and
// what a crash leaves between the two is settled by layer_collection.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "state_db/snapshots.h"
#include "workspace/flattening.h"
#include "workspace/restack.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

struct SnapshotRequest {
  std::string name;         // 1-63 of [a-z0-9-], or empty
  std::string external_id;  // at most 256 bytes; what another program calls it
  std::string idempotency_key;
};

struct RestoreRequest {
  std::string snapshot;  // sn_N, or its name
  bool kill = false;     // what runs in the workspace is ended for it
};

struct UndoRequest {
  std::string exec;  // ex_N; empty: the last one
  bool kill = false;
};

struct ForkRequest {
  std::string snapshot;            // sn_N, or its name; empty: as it is now
  std::vector<std::string> names;  // of the forks; empty: NAME-1, NAME-2...
  uint32_t count = 1;              // 1 to kMaxForks; as many as names, if there are any
  std::map<std::string, std::string> labels;
  std::string idempotency_key;
};
inline constexpr uint32_t kMaxForks = 100;

class Snapshots {
 public:
  Snapshots(Context& context, Workspaces& workspaces, Active& active, Flattening& flattening)
      : context_(context),
        workspaces_(workspaces),
        active_(active),
        restack_(context, workspaces, active),
        flattening_(flattening),
        integrity_(context) {}

  state_db::SnapshotRow take(const Caller& caller, const std::string& name,
                             const SnapshotRequest& request);
  std::vector<state_db::SnapshotRow> list(const Caller& caller, const std::string& name);
  state_db::SnapshotRow show(const Caller& caller, const std::string& name,
                             const std::string& snapshot);
  void drop(const Caller& caller, const std::string& name, const std::string& snapshot);
  // conflict: something runs in it, or has its files, and is not to be ended; what, is said.
  WorkspaceView restore(const Caller& caller, const std::string& name,
                        const RestoreRequest& request);
  // Back to before a command, of those that its policy keeps a snapshot before: the last one that
  // was not undone, if none is named.
  WorkspaceView undo(const Caller& caller, const std::string& name, const UndoRequest& request);
  // All of them, or none.
  std::vector<WorkspaceView> fork(const Caller& caller, const std::string& name,
                                  const ForkRequest& request);
  struct Lineage {
    std::vector<state_db::WorkspaceRow> workspaces;  // by id; those that the caller sees
    std::vector<state_db::SnapshotRow> snapshots;    // kept ones of these, by id
  };
  Lineage tree(const Caller& caller, const std::string& name);
  // The workspace that `name` was forked from goes on from what `name` is now. Its view.
  WorkspaceView promote(const Caller& caller, const std::string& name, bool kill);

  // For the policy of a workspace (Workspaces::Hooks, snapshot_keeper.h). The first takes the lock.
  base::SnapshotId before_exec(const state_db::WorkspaceRow& row);
  state_db::SnapshotRow for_export(const state_db::WorkspaceRow& row);  // caller holds the lock
  void after_stop(const state_db::WorkspaceRow& row);
  void take_interval(base::WorkspaceId id);

 private:
  // Of a ready one, under its lock; with forks of it that are made in the same two commits.
  state_db::SnapshotRow take_locked(const state_db::WorkspaceRow& present,
                                    state_db::NewSnapshot wanted,
                                    std::vector<state_db::NewWorkspace> forks = {},
                                    std::vector<base::WorkspaceId>* made = nullptr);
  std::vector<state_db::Workspaces::Created> begin_forks(
      base::SnapshotId origin, std::vector<state_db::NewWorkspace>& forks,
      std::vector<base::KeyedMutex::Guard>& at_work);
  void require_durable(const state_db::SnapshotRow& snapshot);
  std::vector<base::WorkspaceId> stand_on(const state_db::SnapshotRow& snapshot,
                                          std::vector<state_db::NewWorkspace> forks);
  void undo(const state_db::SnapshotRow& taking,
            const std::vector<state_db::Workspaces::Created>& forks, const std::string& reason);
  // Microseconds of pause.
  uint64_t make_copy(const state_db::SnapshotRow& taking, const state_db::WorkspaceRow& row,
                     const Running& running);
  bool is_empty(base::LayerId layer) const;
  IntegrityCheck::Taken seal_of(const state_db::WorkspaceRow& row, base::LayerId layer);
  void go_on_from(const state_db::WorkspaceRow& row, const state_db::NewSnapshot& wanted, bool kill,
                  const std::string& reason);
  std::vector<pid_t> processes_of(const state_db::WorkspaceRow& row);  // in its sandbox
  void refuse_busy(const state_db::WorkspaceRow& row);
  void bring_to_rest(const state_db::WorkspaceRow& row, bool kill, const std::string& reason);
  std::optional<state_db::SnapshotRow> find_made(const state_db::NewSnapshot& wanted);
  base::WorkspaceId fork_made_before(const state_db::NewWorkspace& fork);
  static state_db::NewSnapshot joined(const Caller& caller, base::WorkspaceId workspace,
                                      state_db::SnapshotCause cause);
  state_db::SnapshotRow find(const Caller& caller, const state_db::WorkspaceRow& row,
                             const std::string& snapshot);
  std::vector<state_db::NewWorkspace> planned_forks(const Caller& caller,
                                                    const state_db::WorkspaceRow& row,
                                                    const ForkRequest& request);

  Context& context_;
  Workspaces& workspaces_;
  Active& active_;
  Restack restack_;
  Flattening& flattening_;
  IntegrityCheck integrity_;
};

}  // namespace moorage::workspace
