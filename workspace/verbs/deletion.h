// Deletes workspaces, brings them back within the undo window, and purges them. Removes disposable
// ones when their last command ends.
#pragma once

#include <string>
#include <vector>

#include "base/fair_pool.h"
#include "workspace/context/waiters.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

class Deletion : private ExecListener {
 public:
  Deletion(Context& context, Leases& leases, ExecWatcher& watcher, PreStop& pre_stop,
           Waiters& waiters, Measurer& measurer, StartStop& start_stop, Views& views)
      : context_(context),
        leases_(leases),
        pre_stop_(pre_stop),
        waiters_(waiters),
        measurer_(measurer),
        start_stop_(start_stop),
        views_(views),
        listens_(watcher.listen(*this)) {}

  // Stops it and marks it deleted; removes nothing before the undo window ends, or purge.
  WorkspaceView remove(const Caller& caller, const std::string& name, const BusyRule& busy);
  WorkspaceView undelete(const Caller& caller, const std::string& name,
                         const std::string& new_name);  // empty: its own, which may be taken
  // Deletes it first if necessary. Conflict while one of its files is being transferred.
  void purge(const Caller& caller, const std::string& name, const BusyRule& busy);
  WorkspaceView resume_remove(const Caller& caller, const std::string& subject, bool purges);
  void finish_purge(const state_db::WorkspaceRow& row);
  void remove_disposable(const state_db::WorkspaceRow& row);  // now, or once possible

 private:
  void exec_ended(const state_db::ExecRow& exec) override;  // measures, or removes a disposable one
  std::vector<base::ExecId> begin_remove(const Caller& caller, const state_db::WorkspaceRow& row,
                                         const BusyRule& busy, const std::string& reason);
  void dispose_later(const state_db::WorkspaceRow& row);

  Context& context_;
  Leases& leases_;
  PreStop& pre_stop_;
  Waiters& waiters_;
  Measurer& measurer_;
  StartStop& start_stop_;
  Views& views_;
  // These two last: their work uses the members above. Two threads, of which one user gets at most
  // one; so many removals of one user may wait.
  base::FairPool disposals_{2, 100'000};
  ExecListeners::Handle listens_;
};

}  // namespace moorage::workspace
