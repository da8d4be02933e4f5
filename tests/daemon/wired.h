// The verbs wired as in main.cc, on their own store, without a backend that runs anything: the
// tests read rows and journals that they write by hand.
#pragma once

#include <memory>
#include <string>

#include "backends/registry.h"
#include "base/wire/journal.h"
#include "daemon/routes/routes.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "served.h"
#include "state_db/store.h"
#include "workspace/context/metrics.h"
#include "workspace/upkeep/budgets.h"
#include "workspace/verbs/execs.h"

namespace moorage::daemon {

class Wired {
 public:
  Wired();

  // A workspace of this user with a running sandbox.
  base::WorkspaceId make_workspace(const std::string& name, uint32_t owner);
  // A running exec with an empty, watched journal.
  base::ExecId make_exec(base::WorkspaceId workspace, bool with_journal = true);
  void write_frame(base::ExecId exec, base::FrameKind kind, const std::string& payload);
  void remove_journal(base::ExecId exec);
  void end(base::ExecId exec, int exit_code);  // writes the frame, waits for the row's outcome

  Api& api() { return *api_; }
  workspace::Execs& execs() { return *execs_; }
  state_db::Store& store() { return *store_; }

 private:
  std::string journal_path(base::ExecId exec);

  TemporaryDirectory directory_;
  std::unique_ptr<state_db::Store> store_;
  std::unique_ptr<EventHub> events_;
  std::unique_ptr<backends::Registry> registry_;
  std::unique_ptr<repo_cache::RepoCache> repos_;
  std::unique_ptr<repo_cache::BaseTrees> base_trees_;
  std::unique_ptr<layers::Storage> storage_;
  base::KeyedMutex locks_;
  workspace::Metrics metrics_;
  std::unique_ptr<workspace::Context> context_;
  workspace::LiveSandboxes active_;
  std::unique_ptr<workspace::Repositories> repositories_;
  std::unique_ptr<workspace::RepositoryVerbs> repository_verbs_;
  std::unique_ptr<workspace::IntegrityCheck> integrity_;
  std::unique_ptr<workspace::PutAway> put_away_;
  std::unique_ptr<workspace::BringBack> bring_back_;
  std::unique_ptr<workspace::Replica> replica_;
  std::unique_ptr<workspace::Workspaces> workspaces_;
  std::unique_ptr<workspace::Execs> execs_;
  std::unique_ptr<workspace::Archives> archives_;
  std::unique_ptr<workspace::ExportSpools> spools_;
  std::unique_ptr<workspace::Flattening> flattening_;
  std::unique_ptr<workspace::Gc> gc_;
  std::unique_ptr<workspace::Budgets> budgets_;
  std::unique_ptr<workspace::Snapshots> snapshots_;
  std::unique_ptr<workspace::Exports> exports_;
  std::unique_ptr<workspace::Imports> imports_;
  std::unique_ptr<workspace::Moves> moves_;
  std::unique_ptr<workspace::Comparison> comparison_;
  std::unique_ptr<workspace::BestOfDriver> best_of_driver_;
  std::unique_ptr<workspace::BestOf> best_of_;
  std::unique_ptr<workspace::ExecWatcher> watcher_;  // destroyed before the verbs it calls
  std::unique_ptr<workspace::StoreUsage> usage_;
  std::unique_ptr<workspace::Top> top_;
  std::unique_ptr<workspace::Reconciler> reconciler_;
  std::unique_ptr<workspace::Doctor> doctor_;
  std::unique_ptr<workspace::QuotaWatch> quotas_;
  std::unique_ptr<Api> api_;
  std::map<base::ExecId, uint64_t> output_bytes_;
};

}  // namespace moorage::daemon
