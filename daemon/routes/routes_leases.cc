// Sharing a workspace, and its lease.
#include "base/limit_ranges.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using workspace::LeaseView;

constexpr int64_t kDefaultTtl_s = 60;

Reply answer(const state_db::WorkspaceRow& row, const std::optional<LeaseView>& lease,
             int status = 200) {
  return Reply::json(lease_json(lease), status, row.id.str());
}

Reply acquire(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  workspace::Leases::Wanted wanted;
  wanted.holder = fields.required_text("holder");
  wanted.ttl_ms =
      fields.whole("ttl_s", base::kLeastTtl_s, base::kMostTtl_s).value_or(kDefaultTtl_s) * 1000;
  wanted.take_over = fields.flag("takeover");
  wanted.keep_execs = fields.flag("keep_execs");
  wanted.key = request.idempotency_key;
  fields.finish();
  const auto lease = api.lease_verbs.acquire(request.caller, request.parameter(0), wanted);
  return Reply::json(lease_json(lease), 201, lease.row.workspace.str());
}

Reply show(Api& api, const Request& request) {
  const auto row =
      workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::read);
  return answer(row, api.leases.look(row.id));
}

Reply heartbeat(Api& api, const Request& request) {
  JsonFields::parse(request.body).finish();
  const auto row =
      workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::write);
  return answer(row, api.leases.heartbeat(request.caller, row));
}

Reply release(Api& api, const Request& request) {
  const auto row =
      workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::write);
  api.leases.release(request.caller, row);
  return Reply::none(row.id.str());
}

Reply share(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const auto group = fields.text("group");
  const bool is_private = fields.flag("private");
  fields.finish();
  if (group.has_value() == is_private) {
    throw Error(Code::invalid_argument, "give either group or private",
                "use moorage share NAME --group GROUP, or --private");
  }
  workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::govern);
  std::optional<uint32_t> gid;
  if (group) gid = workspace::team_group(request.caller, *group);
  return workspace_reply(api.updates.share(request.caller, request.parameter(0), gid));
}

}  // namespace

void add_lease_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("POST /v1/workspaces/{}/lease", Right::write, acquire,
             {.lane = Lane::slow,
              .keep = Keep::refusal});  // a success has the lease's secret, which is kept nowhere
  routes.add("GET /v1/workspaces/{}/lease", Right::read, show);
  routes.add("PUT /v1/workspaces/{}/lease", Right::write, heartbeat, {.keep = Keep::nothing});
  routes.add("DELETE /v1/workspaces/{}/lease", Right::write, release,
             {.keep = Keep::joined, .resume = resumed_none});
  routes.add("POST /v1/workspaces/{}/share", Right::govern, share,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resumed<&Api::updates>});
}

}  // namespace moorage::daemon
