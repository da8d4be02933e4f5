// Verbs on workspaces: create, show, start, stop, delete, restore. Each writes its intent first and
// its outcome last (state_db/lifecycle.h); workspace/recovery/reconcile.h settles what a crash
// leaves between the two. workspace/access/access.h and workspace/access/leases.h say who may do
// what.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workspace/archive/bring_back.h"
#include "workspace/changes/changes.h"
#include "workspace/changes/measurer.h"
#include "workspace/context/waiters.h"
#include "workspace/exec/pre_stop.h"
#include "workspace/repositories/repositories.h"
#include "workspace/sandbox/start.h"
#include "workspace/verbs/files.h"
#include "workspace/verbs/requests.h"
#include "workspace/verbs/workspace_hooks.h"

namespace moorage::workspace {

class Workspaces : private ExecListener {
 public:
  Workspaces(Context& context, Repositories& repositories, ExecWatcher& watcher,
             IntegrityCheck& integrity, BringBack& bring_back, const Replica& replica);
  ~Workspaces();
  WorkspaceHooks& hooks() { return hooks_; }
  WorkspaceView create(const Caller& caller, const CreateRequest& request,
                       const Progress& progress);
  WorkspacePage list(const Caller& caller, const PageRequest& wanted);
  WorkspaceView look(base::WorkspaceId id);  // as last measured; a deleted one as before
  // With a summary of its changes; waits briefly for a new measurement.
  WorkspaceView show(const Caller& caller, const std::string& name);
  state_db::WorkspaceRow find(const Caller& caller, const std::string& name, Right right);
  // Also finds a deleted one if no live one has that name.
  state_db::WorkspaceRow find_with_deleted(const Caller& caller, const std::string& name,
                                           Right right);
  // Waits briefly until its changes after the exec `ended` are counted.
  void measure(const state_db::WorkspaceRow& row, base::ExecId ended);

  // The view's notice names changes that only a new sandbox applies.
  WorkspaceView update(const Caller& caller, const std::string& name, const PolicyChange& change);
  WorkspaceView start(const Caller& caller, const std::string& name);  // no-op if running
  // Runs its pre_stop (the view's notice has its failure), ends its execs, stops the sandbox,
  // syncs. No-op if stopped. All verbs that stop a sandbox throw Waiting.
  WorkspaceView stop(const Caller& caller, const std::string& name, const StopRequest& request);
  // Stops it and marks it deleted; removes nothing before the undo window ends, or purge.
  WorkspaceView remove(const Caller& caller, const std::string& name, const BusyRule& busy);
  WorkspaceView undelete(const Caller& caller, const std::string& name,
                         const std::string& new_name);  // empty: its own, which may be taken
  // Deletes it first if necessary. Conflict while one of its files is being transferred.
  void purge(const Caller& caller, const std::string& name, const BusyRule& busy);
  WorkspaceView resume_remove(const Caller& caller, const std::string& subject, bool purges);
  WorkspaceView resume(const std::string& subject, bool stops);  // otherwise an update or a share
  ChangeList status(const Caller& caller, const std::string& name);
  std::string patch(const Caller& caller, const std::string& name);
  std::vector<DiffStat> diff_stat(const Caller& caller, const std::string& name);

  // Files by inside path ("/workspace/...", "/home/user/...", relative = below /workspace).
  FilesLease files(const Caller& caller, const std::string& name, Right right);
  FileChange change_files(const Caller& caller, const state_db::WorkspaceRow& row);

  WorkspaceView share(const Caller& caller, const std::string& name,
                      std::optional<uint32_t> team_gid);  // empty: private again
  // Conflict if another holds it; ends commands of the previous lease unless they are to be kept.
  LeaseView acquire_lease(const Caller& caller, const std::string& name,
                          const Leases::Wanted& wanted);
  Leases& leases() { return leases_; }

  LiveSandboxPtr ensure_running(const state_db::WorkspaceRow& row,
                                const Also& also = {});  // or starts
  // `begin` runs in the transaction that stops new commands; it may throw to prevent the stop.
  void stop_sandbox(const state_db::WorkspaceRow& present, const std::string& reason,
                    const std::function<void()>& begin = {});
  void refuse_busy(const state_db::WorkspaceRow& row);  // conflict if anything runs
  // move.cc. New sandboxes are created at `place`; the running one ends when the next one exists. A
  // repeat returns `notice`, too. Conflict as bring_to_rest. Caller holds the lock.
  void change_place(const state_db::WorkspaceRow& row, const state_db::Place& place,
                    const Caller& caller, const std::string& notice);
  // Stops an unused one (else conflict), and waits for its files. Caller holds the lock.
  enum class Hook { run, skip };
  void bring_to_rest(const state_db::WorkspaceRow& row, const std::string& reason,
                     Hook hook = Hook::run);
  // The row after settling a snapshot whose outcome was not written. Caller holds the lock.
  state_db::WorkspaceRow settled(const state_db::WorkspaceRow& row);
  // New mounts of a row's layer for the running sandbox. Caller holds the lock.
  layers::ActiveMounts mount_for(const state_db::WorkspaceRow& row, const LiveSandbox& running);
  void seal_unsealed();                            // stopped ones that lost their seal
  void accept(const state_db::WorkspaceRow& row);  // a person confirms the current files
  // Stops the running sandbox for an internal reason. Conflict while a verb is running.
  void stop_because(base::WorkspaceId id, const std::string& reason);
  void remove_disposable(const state_db::WorkspaceRow& row);  // now, or once possible
  PreStop& pre_stop() { return pre_stop_; }
  Waiters& waiters() { return waiters_; }
  void finish_purge(const state_db::WorkspaceRow& row);
  void finish_takeover(const state_db::WorkspaceRow& row);  // ends the last lease's execs; locked
  void abandon(const state_db::WorkspaceRow& row, const std::string& reason);  // reverts a create
  void remove_remains(const state_db::WorkspaceRow& row);  // files of a failed one
  void sync_active();  // syncfs if anything ran or was kept: bounds the loss in a power cut
  void measure_late() { measurer_.catch_up(); }  // call it every second
  void note_lost(const state_db::SandboxRow& sandbox, const std::string& reason);  // its row only
  // Kills the rest of a sandbox and closes its row, in any state.
  void clear_sandbox(const state_db::SandboxRow& sandbox, const std::string& reason);

 private:
  void hold_to_limit(const state_db::WorkspaceRow& row);
  WorkspaceView outline(state_db::WorkspaceRow row, state_db::RepositoryRow repo);
  WorkspaceView view(const state_db::WorkspaceRow& row);
  std::optional<LeaseView> held_lease(base::WorkspaceId id);
  void complete(WorkspaceView& view);
  state_db::RepositoryRow repository_for(const Caller& caller, const CreateRequest& request,
                                         const Progress& progress);
  using Made = std::pair<state_db::WorkspaceTable::Created, base::KeyedMutex::Guard>;
  Made stand_on_base(state_db::NewWorkspace& workspace, const CreateRequest& request,
                     const state_db::RepositoryRow& repo, const Progress& progress);
  std::optional<Made> insert(state_db::NewWorkspace& workspace, const CreateRequest& request,
                             const state_db::RepositoryRow& repo);
  WorkspaceView existing(const Caller& caller, base::WorkspaceId id);
  enum class Compare { always, sometimes };
  layers::Chain chain(const state_db::WorkspaceRow& row, Compare compare = Compare::always);
  layers::Chain chain_at(const state_db::WorkspaceRow& row);
  repo_cache::BaseTreePlaces base_tree_of(const state_db::WorkspaceRow& row);
  layers::ActiveMounts mount_layers(const layers::Chain& layers, uint32_t first_host_id,
                                    layers::MountRoom last = {});
  std::shared_ptr<const SharedMounts> mounts(const state_db::WorkspaceRow& row, Right right);
  void seal_at_rest(base::WorkspaceId id);
  void dispose_later(const state_db::WorkspaceRow& row);
  IntegrityCheck::Taken seal_stopped(const state_db::WorkspaceRow& row);
  LiveSandboxPtr start_sandbox(const state_db::WorkspaceRow& row, const Also& also = {});
  void exec_ended(const state_db::ExecRow& exec) override;  // measures, or removes a disposable one
  bool sandbox_died(base::WorkspaceId workspace, base::SandboxId sandbox) override;
  bool clear_dead(base::WorkspaceId workspace, base::SandboxId sandbox);  // false: busy

  Context& context_;
  Repositories& repositories_;
  ExecWatcher& watcher_;
  SandboxStart starts_;
  Changes changes_;
  Measurer measurer_;
  WorkspaceHooks hooks_;
  Waiters waiters_;
  PreStop pre_stop_;
  Leases leases_;
  IntegrityCheck& integrity_;
  BringBack& bring_back_;
  const Replica& replica_;
  base::SingleFlight sealing_;  // these three last: their work uses the members above
  base::FairPool disposals_;
  ExecListeners::Handle listens_;
};

}  // namespace moorage::workspace
