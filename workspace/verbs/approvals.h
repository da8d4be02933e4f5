// Decisions about pushes that wait, for the workspace's owner and root. The rows are made where the
// egress asks (workspace/network/push_judge.h). A decision is a row; the next push reads it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "state_db/tables/approvals.h"
#include "workspace/access/access.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

struct ApprovalView {
  state_db::ApprovalRow row;
  std::string workspace;  // its name
};

class Approvals {
 public:
  explicit Approvals(Context& context) : context_(context) {}

  // Those that wait or are approved, of all workspaces that the caller sees, or of one: newest
  // first. `all`: of that one in any state.
  std::vector<ApprovalView> list(const Caller& caller, const std::optional<std::string>& workspace,
                                 bool all);
  ApprovalView find(const Caller& caller, const std::string& id, Right right);
  // `to`: approved or refused. Nothing changes if it is that already. conflict: it
  // was used, or is too old.
  ApprovalView decide(const Caller& caller, const std::string& id, state_db::ApprovalState to);

 private:
  Context& context_;
};

}  // namespace moorage::workspace
