#include <algorithm>

#include "base/wire/workspace_path.h"
#include "daemon/json/policy_json.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using workspace::Deletion;
using workspace::Progress;
using workspace::StartStop;

constexpr size_t kUsualPage = 1000;

workspace::ImportedWork import_of(JsonFields fields) {
  workspace::ImportedWork work;
  const std::string repo = fields.required_text("repo");
  const auto id = base::RepoId::parse(repo);
  if (!id) throw Error(Code::invalid_argument, "import.repo must be an id such as repo_3");
  work.repo = *id;
  work.head_commit = fields.required_text("head_commit");
  work.work_commit = fields.required_text("work_commit");
  work.raw_commit = fields.text("raw_commit").value_or(work.work_commit);
  fields.finish();
  return work;
}

workspace::CreateRequest create_request(const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const auto text = [&fields](const char* name) { return fields.given_text(name).value_or(""); };
  workspace::CreateRequest create;
  create.name = text("name");
  create.repo_url = text("repo_url");
  if (auto import = fields.object("import")) create.import = import_of(std::move(*import));
  create.ref = text("ref");
  create.branch = text("branch");
  create.labels = fields.text_map("labels").value_or(std::map<std::string, std::string>());
  create.policy = policy_change(fields);
  create.backend = text("backend");
  create.image = text("image");
  create.runtime = text("runtime");
  create.disposable = fields.flag("disposable");
  const std::string team = text("team");
  if (!team.empty()) create.team_gid = workspace::team_group(request.caller, team);
  create.idempotency_key = request.idempotency_key;
  fields.finish();
  return create;
}

Reply list(Api& api, const Request& request) {
  const workspace::PageRequest wanted{.with_deleted = request.query_flag("deleted"),
                                      .after = request.query_id<base::WorkspaceId>("after"),
                                      .limit = request.query_limit(kUsualPage)};
  const auto page = api.views.list(request.caller, wanted);
  return Reply::json(workspaces_json(page, space_of(api.context.options.store, page.used_bytes)));
}

Reply create(Api& api, const Request& request, const Progress& progress) {
  const auto run = [&] {
    return api.create.create(request.caller, create_request(request), progress);
  };
  return workspace_reply(api.context.metrics.counted(Counted::create, run), 201);
}

Reply show(Api& api, const Request& request) {
  return workspace_reply(api.views.show(request.caller, request.parameter(0)));
}

Reply status(Api& api, const Request& request) {
  return Reply::json(status_json(api.views.status(request.caller, request.parameter(0))));
}

Reply resume_look(Api& api, const Request&, const std::string& subject) {
  return workspace_reply(api.views.look(base::WorkspaceId::parse(subject).value()));
}

Reply update(Api& api, const Request& request) {
  workspace::Naming naming;
  const auto change = body_of(request, [&naming](JsonFields& fields) {
    naming.name = fields.given_text("name");
    naming.labels = fields.text_changes("labels");
    return policy_change(fields);
  });
  return run_counted(Counted::update, api, request, api.updates, &workspace::Update::update, change,
                     naming);
}

// Below the time that a client waits for a silent answer.
constexpr int64_t kMostWait_ms = 1'500'000;

Reply remove(Api& api, const Request& request) {
  const workspace::BusyRule busy{
      .force = request.query_flag("force"),
      .wait = std::chrono::milliseconds(request.query_number("wait_ms", kMostWait_ms).value_or(0))};
  if (!request.query_flag("purge")) {
    return run_counted(Counted::remove, api, request, api.deletion, &Deletion::remove, busy);
  }
  api.context.metrics.counted(
      Counted::purge, [&] { api.deletion.purge(request.caller, request.parameter(0), busy); });
  return Reply::none();
}

Reply resume_remove(Api& api, const Request& request, const std::string& subject) {
  const bool purges = request.query_flag("purge");
  const auto view = api.deletion.resume_remove(request.caller, subject, purges);
  return purges ? Reply::none() : workspace_reply(view);
}

Reply undelete(Api& api, const Request& request) {
  const std::string new_name =
      body_of(request, [](JsonFields& fields) { return fields.text("name").value_or(""); });
  return run_counted(Counted::undelete, api, request, api.deletion, &Deletion::undelete, new_name);
}

workspace::DiffBase diff_base(const Request& request) {
  const std::string base = request.query_text("base").value_or("work");
  if (base == "work") return workspace::DiffBase::work;
  if (base == "head") return workspace::DiffBase::head;
  throw Error(Code::invalid_argument, "base must be work or head, not '" + base + "'",
              "against a branch, ask git inside: moorage exec NAME -- git diff origin/main");
}

// Files and directories of a diff; empty: all.
std::vector<std::string> diff_paths(const Request& request) {
  constexpr size_t kMostPaths = 1000;
  std::vector<std::string> paths = request.query_list("path");
  if (paths.size() > kMostPaths)
    throw Error(Code::invalid_argument, "more than 1000 paths", "name their directories");
  for (std::string& path : paths) path = base::workspace_path(path);
  const bool all = std::find(paths.begin(), paths.end(), "") != paths.end();
  return all ? std::vector<std::string>{} : paths;
}

Reply diff(Api& api, const Request& request) {
  const std::string& name = request.parameter(0);
  const auto base = diff_base(request);
  workspace::DiffScope scope;
  scope.only = diff_paths(request);
  if (request.query_flag("stat")) {
    return Reply::json(diff_stat_json(api.views.diff_stat(request.caller, name, base, scope)));
  }
  Reply reply = Reply::json(patch_text(api.views.patch(request.caller, name, base, scope)));
  reply.content_type = "text/x-patch";
  return reply;
}

Reply base_file(Api& api, const Request& request) {
  Reply reply = Reply::json(
      api.views.base_file(request.caller, request.parameter(0), request.required_query("path")));
  reply.content_type = "application/octet-stream";
  return reply;
}

Reply start(Api& api, const Request& request) {
  JsonFields::parse(request.body).finish();
  return run_counted(Counted::start, api, request, api.start_stop, &StartStop::start);
}

Reply stop(Api& api, const Request& request) {
  const auto wanted = body_of(request, [](JsonFields& fields) {
    workspace::StopRequest stop{.run_hook = !fields.flag("no_hook")};
    stop.busy.force = fields.flag("force");
    stop.busy.wait =
        std::chrono::milliseconds(fields.whole("wait_ms", 0, kMostWait_ms).value_or(0));
    return stop;
  });
  return run_counted(Counted::stop, api, request, api.start_stop, &StartStop::stop, wanted);
}

Reply sync(Api& api, const Request& request, const Progress& progress) {
  JsonFields::parse(request.body).finish();
  return run_counted(Counted::sync, api, request, api.sync, &workspace::Sync::sync, progress);
}

}  // namespace

void add_workspace_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  const RouteRules shown_again{.lane = Lane::slow, .keep = Keep::joined, .resume = resume_look};
  routes.add("POST /v1/workspaces", Right::none, create,
             {.lane = Lane::fetch, .keep = Keep::joined});
  routes.add("GET /v1/workspaces", Right::read, list, {.query = {"deleted", "after", "limit"}});
  routes.add("GET /v1/workspaces/{}", Right::read, show, {.lane = Lane::look});
  routes.add("PATCH /v1/workspaces/{}", Right::govern, update,
             {.lane = Lane::look, .keep = Keep::joined, .resume = resumed<&Api::updates>});
  routes.add("DELETE /v1/workspaces/{}", Right::destroy, remove,
             {.query = {"purge", "force", "wait_ms"},
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = resume_remove});
  routes.add("POST /v1/workspaces/{}/undelete", Right::destroy, undelete, shown_again);
  routes.add("POST /v1/workspaces/{}/start", Right::write, start, shown_again);
  routes.add("POST /v1/workspaces/{}/stop", Right::write, stop,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resumed<&Api::start_stop>});
  routes.add("POST /v1/workspaces/{}/sync", Right::write, sync,
             {.lane = Lane::fetch, .keep = Keep::joined, .resume = resumed<&Api::sync>});
  routes.add("GET /v1/workspaces/{}/diff", Right::read, diff,
             {.query = {"stat", "base"}, .lists = {"path"}, .lane = Lane::slow});
  routes.add("GET /v1/workspaces/{}/base", Right::read, base_file,
             {.query = {"path"}, .lane = Lane::slow});
  routes.add("GET /v1/workspaces/{}/status", Right::read, status, {.lane = Lane::slow});
}

}  // namespace moorage::daemon
