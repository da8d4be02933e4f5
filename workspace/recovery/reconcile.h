// After a crash, and every few seconds: compares the database with the backends and the disk and
// makes them agree, as state_db/recovery_table.h says. Each step is independent and repeatable, so
// a kill in its middle is harmless. At start the rows are settled before the first verb is served,
// and the files of workspaces right after that, while a workspace's lock makes its verbs wait. The
// periodic run clears what a full disk, a verb that failed twice, or a person left behind.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "workspace/access/leases.h"
#include "workspace/chain/chains.h"
#include "workspace/chain/sealing.h"
#include "workspace/recovery/machines.h"
#include "workspace/recovery/repairs.h"
#include "workspace/repositories/repositories.h"
#include "workspace/sandbox/sandboxes.h"
#include "workspace/verbs/deletion.h"
#include "workspace/verbs/execs.h"
#include "workspace/verbs/files.h"
#include "workspace/verbs/lease_verbs.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

class Reconciler {
 public:
  // `patience`: how long a round waits for steps on single workspaces (RoundWork).
  Reconciler(Context& context, Repositories& repositories, Leases& leases, Chains& chains,
             Sealing& sealing, Sandboxes& sandboxes, StartStop& start_stop, Deletion& deletion,
             LeaseVerbs& lease_verbs, Files& files, ExecWatcher& watcher,
             std::chrono::milliseconds patience = std::chrono::seconds(5))
      : context_(context),
        repositories_(repositories),
        leases_(leases),
        chains_(chains),
        sealing_(sealing),
        sandboxes_(sandboxes),
        start_stop_(start_stop),
        deletion_(deletion),
        lease_verbs_(lease_verbs),
        files_(files),
        watcher_(watcher),
        repairs_(context),
        salvage_(context, chains),
        machines_(context, salvage_),
        askers_(kAskers, std::numeric_limits<size_t>::max()),
        round_(patience) {}
  // Runs before the API answers. It never walks files of a workspace, reads journals, or waits for
  // the processes of a sandbox to end.
  void at_start();
  void after_ready();  // once it answers: repairs workspaces (repairs.h)
  // Call before destroying what it uses. False: a workspace is still being repaired.
  bool stop_repairs(std::chrono::milliseconds patience) { return repairs_.stop(patience); }
  void periodic();  // after that; any thread
  MachineSweep& machines() { return machines_; }

 private:
  void settle_repositories();
  void settle_repository(const state_db::RepositoryRow& row);
  void settle_base_trees();
  void settle_base_tree(base::RepoId repository, const std::string& commit);
  std::set<std::string> mounted_commits(base::RepoId repository);
  bool has_dependents(base::RepoId repository);
  void adopt_sandboxes();
  void adopt_or_note(const state_db::SandboxRow& row);
  // Leftovers of one workspace's dead sandboxes and of their commands.
  struct Remains {
    std::vector<state_db::SandboxRow> dead;
    std::vector<state_db::ExecRow> execs;
  };
  std::map<base::WorkspaceId, Remains> find_remains();
  void clear(base::WorkspaceId workspace, const Remains& remains);
  void add_remains();
  void clear_remains();
  void begin(const char* event, base::WorkspaceId workspace, const std::function<void()>& step);
  bool adopt(const state_db::SandboxRow& row);
  bool relink(const state_db::SandboxRow& row);
  void adopt_exec(const state_db::ExecRow& exec, const LiveSandbox& running);
  void ask_warden(const LiveSandbox& running, const std::vector<ExecWatcher::Unconfirmed>& execs);
  void ask_wardens();  // about all commands whose start nobody confirmed
  bool is_untouched(const state_db::WorkspaceRow& row);
  void remove_used();
  void remove_strangers();
  void sweep_uploads();
  void settle_snapshots();
  void drop_cut_copies();
  void settle_workspaces();
  void settle_cut();
  void settle_archives();
  bool is_left_over(const state_db::WorkspaceRow& row);
  void add_takeovers();
  void finish_takeovers();
  void settle(const state_db::WorkspaceRow& row, const std::string& reason);
  void finish_initial_files(const state_db::WorkspaceRow& row);
  void keep_notes();
  void purge_due();
  void purge(const state_db::WorkspaceRow& due);

  static constexpr size_t kAskers = 4;
  Context& context_;
  Repositories& repositories_;
  Leases& leases_;
  Chains& chains_;
  Sealing& sealing_;
  Sandboxes& sandboxes_;
  StartStop& start_stop_;
  Deletion& deletion_;
  LeaseVerbs& lease_verbs_;
  Files& files_;
  ExecWatcher& watcher_;
  std::mutex periodic_mutex_;
  base::WorkspaceId noted_;              // last one visited by this pass over notes
  std::set<base::WorkspaceId> unnoted_;  // skipped because a verb held them
  std::chrono::steady_clock::time_point notes_due_;
  Repairs repairs_;
  Salvage salvage_;
  MachineSweep machines_;
  base::ThreadPool askers_;  // these two last: their work uses the members above
  RoundWork round_;
};

}  // namespace moorage::workspace
