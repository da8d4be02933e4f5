// Keeps the facts in a workspace's row that must be looked for: how many files changed, what its
// layer takes on disk, how many commits are not pushed. The agent decides how long that takes, so
// nobody's request does it: two threads do, one run a workspace at a time (base/flights.h). A fact
// that cannot be told keeps its old value, and the log says why. Beyond the limits of changes.h a
// figure is a lower bound; a layer that cannot be counted to its end keeps the figure that it had.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "base/flights.h"
#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/changes.h"
#include "workspace/context.h"

namespace moorage::workspace {

class Measurer {
 public:
  Measurer(Context& context, Active& active, Changes& changes);

  // Waits up to a second for facts that are as of now; less where that is known to be in vain. The
  // count is also what `ended`, the exec that ended last, left, if no other one runs meanwhile.
  void refresh(base::WorkspaceId id, base::ExecId ended = {});
  // The same, but it never waits and runs at most every ten seconds; after an exec that came too
  // soon for it, when those are over.
  void refresh_later(base::WorkspaceId id, base::ExecId ended);
  void catch_up();                    // what was put off; call it every second
  void forget(base::WorkspaceId id);  // a workspace that is purged
  // Asks what only the running sandbox can tell, at most a second.
  void before_stop(const state_db::WorkspaceRow& row);

 private:
  uint32_t owner_of(base::WorkspaceId id);
  void measure(base::WorkspaceId id);
  state_db::WorkspaceFacts look(const state_db::WorkspaceRow& row);
  // The exec that ended last; none while one runs, and none that has its count already.
  base::ExecId uncounted(base::WorkspaceId id);
  void set_uncounted(base::WorkspaceId id, base::ExecId ended);
  void attempt(const state_db::WorkspaceRow& row, const char* fact,
               const std::function<void()>& look);
  void keep(const state_db::WorkspaceRow& row, const state_db::WorkspaceFacts& facts,
            base::ExecId counted = {});

  Context& context_;
  Active& active_;
  Changes& changes_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, base::ExecId> uncounted_;
  std::set<base::WorkspaceId> put_off_;
  base::Flights flights_;
};

}  // namespace moorage::workspace
