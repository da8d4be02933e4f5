// Changes the policy of a workspace, its name and labels, and who may use it: one commit, so a
// crash leaves the old state or the new one.
#pragma once

#include <functional>

#include "workspace/network/networks.h"
#include "workspace/verbs/rule_change.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

class Update {
 public:
  Update(Context& context, Leases& leases, Networks& networks, Views& views)
      : context_(context), leases_(leases), networks_(networks), views_(views) {}

  // The view's notice names changes that only a new sandbox applies. A new name or labels need the
  // lease, because its holder works with them; and the rules must allow what runs with the labels.
  WorkspaceView update(const Caller& caller, const std::string& name, const PolicyChange& change,
                       const Naming& naming = {});
  // Adds and removes network rules; they apply before it returns, to open connections, too.
  WorkspaceView change_rules(const Caller& caller, const std::string& name,
                             const RuleChange& change);
  // Without a team it is private again. The lease of somebody who loses access ends; the view's
  // notice names his commands that still run.
  WorkspaceView share(const Caller& caller, const std::string& name,
                      std::optional<uint32_t> team_gid);
  // An update or a share whose daemon died after its commit: the steps after it.
  WorkspaceView resume(const std::string& subject);

 private:
  using Change = std::function<void(state_db::WorkspacePolicy&)>;
  void check_naming(const state_db::WorkspaceRow& row, const Naming& naming) const;
  std::string left_running(const state_db::WorkspaceRow& row) const;
  void end_lost_lease(const state_db::WorkspaceRow& row);
  WorkspaceView commit(const Caller& caller, base::WorkspaceId id, const Change& change,
                       const Naming& naming = {});

  Context& context_;
  Leases& leases_;
  Networks& networks_;
  Views& views_;
};

}  // namespace moorage::workspace
