// Snapshots of a workspace: taking, restoring, forking.
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using workspace::Snapshots;

Reply answer(const state_db::SnapshotRow& row, int status = 200) {
  return Reply::json(snapshot_json(row), status, row.id.str());
}

Reply take(Api& api, const Request& request) {
  const auto wanted = body_of(request, [&](JsonFields& fields) {
    return workspace::SnapshotRequest{.name = fields.text("name").value_or(""),
                                      .external_id = fields.text("external_id").value_or(""),
                                      .idempotency_key = request.idempotency_key};
  });
  const auto run = [&] { return api.snapshots.take(request.caller, request.parameter(0), wanted); };
  return answer(api.context.metrics.counted(Counted::snapshot, run), 201);
}

Reply list(Api& api, const Request& request) {
  return Reply::json(snapshots_json(api.snapshots.list(request.caller, request.parameter(0))));
}

Reply show(Api& api, const Request& request) {
  return answer(api.snapshots.show(request.caller, request.parameter(0), request.parameter(1)));
}

Reply drop(Api& api, const Request& request) {
  api.context.metrics.counted(Counted::drop, [&] {
    api.snapshots.drop(request.caller, request.parameter(0), request.parameter(1));
  });
  return Reply::none();
}

Reply restore(Api& api, const Request& request) {
  const auto wanted = body_of(request, [](JsonFields& fields) {
    return workspace::RestoreRequest{.snapshot = fields.required_text("snapshot"),
                                     .kill = fields.flag("kill")};
  });
  return run_counted(Counted::restore, api, request, api.snapshots, &Snapshots::restore, wanted);
}

Reply undo(Api& api, const Request& request) {
  const auto wanted = body_of(request, [](JsonFields& fields) {
    return workspace::UndoRequest{.exec = fields.text("exec").value_or(""),
                                  .kill = fields.flag("kill")};
  });
  return run_counted(Counted::restore, api, request, api.snapshots, &Snapshots::undo, wanted);
}

Reply fork(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  workspace::ForkRequest wanted;
  wanted.snapshot = fields.text("snapshot").value_or("");
  wanted.names = fields.byte_list("names").value_or(std::vector<std::string>{});
  wanted.count = static_cast<uint32_t>(fields.whole("count", 1, workspace::kMaxForks).value_or(1));
  wanted.labels = fields.text_map("labels").value_or(std::map<std::string, std::string>{});
  wanted.idempotency_key = request.idempotency_key;
  fields.finish();
  const auto run = [&] { return api.snapshots.fork(request.caller, request.parameter(0), wanted); };
  return Reply::json(forks_json(api.context.metrics.counted(Counted::fork, run)), 201);
}

Reply promote(Api& api, const Request& request) {
  const bool kill = body_of(request, [](JsonFields& fields) { return fields.flag("kill"); });
  return run_counted(Counted::promote, api, request, api.snapshots, &Snapshots::promote, kill);
}

Reply tree(Api& api, const Request& request) {
  return Reply::json(lineage_json(api.snapshots.tree(request.caller, request.parameter(0))));
}

}  // namespace

void add_snapshot_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  const RouteRules change{.lane = Lane::slow, .keep = Keep::joined};
  routes.add("POST /v1/workspaces/{}/snapshots", Right::write, take, change);
  routes.add("GET /v1/workspaces/{}/snapshots", Right::read, list);
  routes.add("GET /v1/workspaces/{}/snapshots/{}", Right::read, show);
  routes.add("DELETE /v1/workspaces/{}/snapshots/{}", Right::write, drop,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resumed_none});
  routes.add("POST /v1/workspaces/{}/restore", Right::write, restore, change);
  routes.add("POST /v1/workspaces/{}/undo", Right::write, undo, change);
  routes.add("POST /v1/workspaces/{}/fork", Right::write, fork, change);
  routes.add("POST /v1/workspaces/{}/promote", Right::write, promote, change);
  routes.add("GET /v1/workspaces/{}/tree", Right::read, tree);
}

}  // namespace moorage::daemon
