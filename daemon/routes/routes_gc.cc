#include "daemon/json/json_object.h"
#include "daemon/routes/routes.h"
#include "workspace/context/free_space.h"

namespace moorage::daemon {
namespace {

using workspace::GcRow;

// Enough kept rows to show the reasons: ten thousand workspaces on one base tree have one reason.
constexpr size_t kMostKept = 200;

JsonObject row_object(const GcRow& row) {
  JsonObject object{{"rung", workspace::kGcRungNames.at(static_cast<size_t>(row.rung))},
                    {"repo", row.repository.str()},
                    {"goes", row.goes},
                    {"why", lossy_utf8(row.why)}};
  if (row.workspace) object["workspace"] = row.workspace.str();
  put_text(object, "commit", row.commit);
  if (!row.path.empty()) put_bytes(object, "path", row.path);
  put_text(object, "subject", row.subject);
  put_known(object, "bytes", row.bytes);
  put_known(object, "files", row.files);
  return object;
}

JsonObject rows_object(const std::vector<GcRow>& rows) {
  boost::json::array shown;
  uint64_t bytes = 0;
  size_t kept = 0;
  for (const GcRow& row : rows) {
    if (row.goes) bytes += row.bytes.value_or(0);
    if (!row.goes && ++kept > kMostKept) continue;
    shown.push_back(row_object(row));
  }
  return {{"rows", std::move(shown)},
          {"bytes", bytes},
          {"goes", rows.size() - kept},
          {"kept", kept},
          {"complete", kept <= kMostKept}};
}

void put_room(Api& api, JsonObject& object) {
  const auto room = workspace::look_at_room(api.context.options);
  object["space"] = {{"total_bytes", room.space.total_bytes},
                     {"free_bytes", room.space.free_bytes},
                     {"kept_free_bytes", room.min_free_bytes},
                     {"level", workspace::kRoomLevelNames.at(static_cast<size_t>(room.level()))}};
}

// Root sees everything; others their own caches and workspaces, and the shared rows they use.
Reply explain(Api& api, const Request& request) {
  auto rows = api.gc.plan();
  if (!request.caller.root()) {
    std::set<base::WorkspaceId> own;
    state_db::WorkspaceQuery query;
    query.owner_uid = request.caller.uid;
    query.with_deleted = true;
    for (const auto& row : state_db::WorkspaceTable(api.context.store).list(query))
      own.insert(row.id);
    std::set<base::RepoId> visible;
    for (const auto& row : api.repositories.list(request.caller)) visible.insert(row.id);
    std::erase_if(rows, [&](const GcRow& row) {
      return row.workspace ? !own.contains(row.workspace) : !visible.contains(row.repository);
    });
  }
  JsonObject object = rows_object(rows);
  put_room(api, object);
  return Reply::json(text_of(object));
}

Reply run(Api& api, const Request& request) {
  const auto until_free = body_of(
      request, [](JsonFields& fields) { return fields.whole("until_free_bytes", 1, INT64_MAX); });
  const auto enough = [&] {
    const auto space = base::file_system_space(api.context.options.store);
    return until_free && space.free_bytes >= static_cast<uint64_t>(*until_free);
  };
  const auto result =
      api.gc.run("requested by " + workspace::user_name(request.caller.uid), {}, enough);
  JsonObject object = rows_object(result.rows);
  object["freed_bytes"] = result.freed_bytes;
  object["enough"] = result.enough || !until_free;
  put_room(api, object);
  return Reply::json(text_of(object));
}

}  // namespace

void add_gc_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("GET /v1/gc", Right::none, explain, {.lane = Lane::look});
  routes.add("POST /v1/gc", Access::root(), run, {.lane = Lane::slow});
}

}  // namespace moorage::daemon
