// Keeps the measured facts in a workspace's row: how many files changed, how much disk space its
// layer takes, how many commits are not pushed, which commit of upstream its changes begin at. The
// agent's files decide how long that takes, so no request does it: two threads do, one workspace at
// a time each (base/single_flight.h). If a fact cannot be measured, it keeps its old value and the
// log says why. Beyond the limits of changes.h a figure is a lower bound; a layer that cannot be
// counted completely keeps its old figure.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "base/single_flight.h"
#include "state_db/tables/workspaces.h"
#include "workspace/changes/changes.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

class Measurer {
 public:
  explicit Measurer(Context& context);

  // Waits up to a second for current facts; less if it knows that waiting is useless. The count
  // also belongs to `ended`, the exec that ended last, if no other one runs meanwhile.
  void refresh(base::WorkspaceId id, base::ExecId ended = {});
  // The same, but never waits and runs at most every ten seconds; if an exec ended too soon after a
  // run, it runs when those are over.
  void refresh_later(base::WorkspaceId id, base::ExecId ended);
  // Only where the changes begin, now: before its files are compared or continued from. Waits for
  // git inside if upstream has new commits, for at most a second.
  void follow_base(const state_db::WorkspaceRow& row);
  void catch_up();                    // runs postponed refreshes; call it every second
  void forget(base::WorkspaceId id);  // for a purged workspace
  // Measures the facts that need the running sandbox, for at most a second.
  void before_stop(state_db::WorkspaceRow row);

 private:
  void measure(base::WorkspaceId id);
  state_db::WorkspaceFacts look(state_db::WorkspaceRow row);
  // Where the changes begin after a rebase or merge inside. Asks only if upstream has new commits.
  void follow_base(state_db::WorkspaceRow& row, const LiveSandbox& running,
                   std::chrono::milliseconds deadline);
  // The exec that ended last; none if one is running, or if the last one has its count.
  base::ExecId uncounted(base::WorkspaceId id);
  void set_uncounted(base::WorkspaceId id, base::ExecId ended);
  void try_step(const state_db::WorkspaceRow& row, const char* fact,
                const std::function<void()>& look);
  void keep(const state_db::WorkspaceRow& row, const state_db::WorkspaceFacts& facts,
            base::ExecId counted = {});

  Context& context_;
  Changes changes_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, base::ExecId> uncounted_;
  std::set<base::WorkspaceId> put_off_;
  base::SingleFlight flights_;
};

}  // namespace moorage::workspace
