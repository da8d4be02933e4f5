// Sharing a workspace, and its lease.
#include "daemon/json/json_fields.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;
using workspace::LeaseView;

constexpr int64_t kDefaultTtl_s = 60;

Reply answer(const state_db::WorkspaceRow& row, const std::optional<LeaseView>& lease,
             int status = 200) {
  Reply reply = Reply::json(lease_json(lease), status);
  reply.subject = row.id.str();
  return reply;
}

Reply acquire(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  workspace::Leases::Wanted wanted;
  wanted.holder = fields.required_text("holder");
  wanted.ttl_ms = fields.whole("ttl_s", 5, 3600).value_or(kDefaultTtl_s) * 1000;
  wanted.take_over = fields.flag("takeover");
  wanted.keep_execs = fields.flag("keep_execs");
  wanted.key = request.idempotency_key;
  fields.finish();
  const auto lease = api.workspaces.acquire_lease(request.caller, request.parameter(0), wanted);
  Reply reply = Reply::json(lease_json(lease), 201);
  reply.subject = lease.row.workspace.str();
  return reply;
}

Reply show(Api& api, const Request& request) {
  const auto row = api.workspaces.find(request.caller, request.parameter(0), Right::read);
  return answer(row, api.workspaces.leases().look(row.id));
}

Reply heartbeat(Api& api, const Request& request) {
  JsonFields::parse(request.body).finish();
  const auto row = api.workspaces.find(request.caller, request.parameter(0), Right::write);
  return answer(row, api.workspaces.leases().heartbeat(request.caller, row));
}

Reply release(Api& api, const Request& request) {
  const auto row = api.workspaces.find(request.caller, request.parameter(0), Right::write);
  api.workspaces.leases().release(request.caller, row);
  Reply reply = Reply::none();
  reply.subject = row.id.str();
  return reply;
}

Reply shared(const workspace::WorkspaceView& view) {
  Reply reply = Reply::json(workspace_json(view));
  reply.subject = view.row.id.str();
  return reply;
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
  api.workspaces.find(request.caller, request.parameter(0), Right::govern);
  std::optional<uint32_t> gid;
  if (group) gid = workspace::team_group(request.caller, *group);
  return shared(api.workspaces.share(request.caller, request.parameter(0), gid));
}

}  // namespace

void add_lease_routes(Router& router, Api& api) {
  const auto verb = [&api](Reply (*run)(Api&, const Request&)) {
    return Handler([&api, run](const Request& request) { return run(api, request); });
  };
  constexpr const char* kLease = "/v1/workspaces/{}/lease";
  router.add({.method = "POST",
              .pattern = kLease,
              .access = Right::write,
              .handler = verb(acquire),
              .lane = Lane::slow,
              .keep = Keep::refusal});  // a success has the lease's secret, which is kept nowhere
  router.add({.method = "GET", .pattern = kLease, .access = Right::read, .handler = verb(show)});
  router.add({.method = "PUT",
              .pattern = kLease,
              .access = Right::write,
              .handler = verb(heartbeat),
              .keep = Keep::nothing});
  router.add({.method = "DELETE",
              .pattern = kLease,
              .access = Right::write,
              .handler = verb(release),
              .keep = Keep::joined,
              .resume = resumed_none});
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/{}/share",
              .access = Right::govern,
              .handler = verb(share),
              .keep = Keep::joined,
              .resume = [&api](const Request&, const std::string& subject) {
                return shared(api.workspaces.resume(subject, false));
              }});
}

}  // namespace moorage::daemon
