// Pushes that wait for an approval.
#include "daemon/json/json_object.h"
#include "daemon/routes/routes.h"
#include "workspace/verbs/approvals.h"

namespace moorage::daemon {
namespace {

using boost::json::object;
using state_db::ApprovalState;

object approval_object(const workspace::ApprovalView& view) {
  const state_db::ApprovalRow& row = view.row;
  object made{{"id", row.id.str()},
              {"workspace", view.workspace},
              {"workspace_id", row.workspace.str()},
              {"repository", row.repository},
              {"ref", row.ref},
              {"old", row.old_id},
              {"new", row.new_id},
              {"state", state_db::state_name(row.state)}};
  if (row.commits) made["commits"] = *row.commits;
  if (!row.title.empty()) made["title"] = lossy_utf8(row.title);
  if (row.decided_uid)
    made["decided_by"] = workspace::user_name(static_cast<uint32_t>(*row.decided_uid));
  put_time(made, "asked_at", row.asked_wall_ms);
  put_time(made, "decided_at", row.decided_wall_ms);
  put_time(made, "used_at", row.used_wall_ms);
  return made;
}

Reply list(Api& api, const Request& request) {
  const auto views = api.approvals.list(request.caller, request.query_text("workspace"),
                                        request.query_flag("all"));
  return Reply::json(text_of({{"approvals", array_of(views, approval_object)}}));
}

template <ApprovalState to>
Reply decide(Api& api, const Request& request) {
  JsonFields::parse(request.body).finish();
  return Reply::json(
      text_of(approval_object(api.approvals.decide(request.caller, request.parameter(0), to))));
}

Reply resume(Api& api, const Request& request, const std::string& id) {
  return Reply::json(
      text_of(approval_object(api.approvals.find(request.caller, id, Right::govern))));
}

}  // namespace

void add_approval_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  const RouteRules once{.keep = Keep::joined, .resume = resume};
  routes.add("GET /v1/approvals", Right::read, list, {.query = {"workspace", "all"}});
  routes.add("POST /v1/approvals/{}/approve", Right::govern, decide<ApprovalState::approved>, once);
  routes.add("POST /v1/approvals/{}/refuse", Right::govern, decide<ApprovalState::refused>, once);
}

}  // namespace moorage::daemon
