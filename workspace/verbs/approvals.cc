#include "workspace/verbs/approvals.h"

#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/keyed_request.h"

namespace moorage::workspace {

using state_db::ApprovalRow;
using state_db::ApprovalState;
using state_db::ApprovalTable;

std::vector<ApprovalView> Approvals::list(const Caller& caller,
                                          const std::optional<std::string>& workspace, bool all) {
  std::vector<ApprovalView> views;
  if (workspace) {
    const auto row = find_workspace(context_.store, caller, *workspace, Right::read);
    for (ApprovalRow& approval : ApprovalTable(context_.store).of(row.id)) {
      const bool open =
          approval.state == ApprovalState::waiting || approval.state == ApprovalState::approved;
      if (open || all) views.push_back({std::move(approval), row.name});
    }
    return views;
  }
  state_db::WorkspaceTable table(context_.store);
  for (ApprovalRow& approval : ApprovalTable(context_.store).open()) {
    const auto row = table.get(approval.workspace);
    const bool gone = row.state == state_db::WorkspaceState::deleted;
    if (!gone && sees(caller, row)) views.push_back({std::move(approval), row.name});
  }
  return views;
}

// Of another user's workspace it says the same as of one that does not exist.
ApprovalView Approvals::find(const Caller& caller, const std::string& id, Right right) {
  const auto parsed = base::ApprovalId::parse(id);
  if (!parsed) {
    throw Error(Code::invalid_argument, "not an approval id (expected ap_N): '" + id + "'",
                "list them: moorage approvals");
  }
  const auto row = ApprovalTable(context_.store).find(*parsed);
  if (row) {
    const auto workspace = state_db::WorkspaceTable(context_.store).get(row->workspace);
    if (sees(caller, workspace)) {
      find_workspace(context_.store, caller, workspace.id.str(), right);
      return {*row, workspace.name};
    }
  }
  throw Error(Code::not_found, "there is no approval " + id, "list them: moorage approvals");
}

ApprovalView Approvals::decide(const Caller& caller, const std::string& id, ApprovalState to) {
  ApprovalView view = find(caller, id, Right::govern);
  const std::string what = to == ApprovalState::approved ? "approved" : "refused";
  if (view.row.state != to && !state_db::may_move(view.row.state, to)) {
    throw Error(Code::conflict, id + " is " + std::string(state_db::state_name(view.row.state)),
                "push again to ask for another one");
  }
  context_.store.transaction([&] {
    if (view.row.state != to) {
      view.row = ApprovalTable(context_.store)
                     .decide(view.row, {to, caller.uid, what + " by " + user_name(caller.uid)});
    }
    join_key(context_.store, caller, id);
  });
  base::log(base::LogLevel::info, "approval." + what,
            {{"ap", view.row.id}, {"ws", view.row.workspace}, {"uid", caller.uid}});
  return view;
}

}  // namespace moorage::workspace
