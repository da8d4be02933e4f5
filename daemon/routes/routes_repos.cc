#include "daemon/json/json_fields.h"
#include "daemon/routes/file_transfer.h"
#include "daemon/routes/routes.h"
#include "workspace/context/free_space.h"
#include "workspace/context/metrics.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;
using workspace::Caller;
using workspace::Progress;

RepositoryView complete(Api& api, state_db::RepositoryRow row) {
  RepositoryView view;
  view.tip = api.repositories.tip(row.id);
  view.workspaces = state_db::WorkspaceTable(api.context.store).count(row.id);
  view.row = std::move(row);
  return view;
}

Reply answer(Api& api, state_db::RepositoryRow row, int status) {
  Reply reply = Reply::json({}, status);
  reply.subject = row.id.str();
  reply.body = repository_json(complete(api, std::move(row)));
  return reply;
}

// For a repository cloned or fetched before the daemon died. If it was removed since, answers
// not_found: a repeat does not bring it back.
Reply resumed(Api& api, const std::string& subject, int status) {
  const auto id = base::RepoId::parse(subject).value();
  return answer(api, state_db::RepositoryTable(api.context.store).get(id), status);
}

Reply imported(const workspace::ImportedWork& work) {
  Reply reply = Reply::json(import_json(work), 201);
  reply.subject = work.repo.str();
  return reply;
}

// By "repo_3", or by the name or URL of exactly one repository that the caller sees.
base::RepoId find(Api& api, const Caller& caller, const std::string& text) {
  if (const auto id = base::RepoId::parse(text)) return *id;
  std::vector<base::RepoId> found;
  for (const auto& row : api.repositories.list(caller)) {
    if (row.name == text || row.url == text) found.push_back(row.id);
  }
  if (found.size() > 1) {
    throw Error(Code::conflict,
                "there are " + std::to_string(found.size()) + " repositories '" + text + "'",
                "use its id; moorage repo ls lists them");
  }
  if (found.empty()) throw Error(Code::not_found, "there is no repository '" + text + "'");
  return found.front();
}

Reply add(Api& api, const Request& request, const Progress& progress) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string url = fields.required_text("url");
  fields.finish();
  return answer(api, api.repositories.add(request.caller, url, progress), 201);
}

Reply fetch(Api& api, const Request& request, const Progress& progress) {
  JsonFields::parse(request.body).finish();
  const auto id = find(api, request.caller, request.parameter(0));
  auto row = api.context.metrics.counted(
      workspace::Verb::fetch, [&] { return api.repositories.fetch(request.caller, id, progress); });
  return answer(api, std::move(row), 200);
}

Reply list(Api& api, const Request& request) {
  std::vector<RepositoryView> views;
  for (auto& row : api.repositories.list(request.caller))
    views.push_back(complete(api, std::move(row)));
  return Reply::json(repositories_json(views));
}

Reply remove(Api& api, const Request& request) {
  const auto id = find(api, request.caller, request.parameter(0));
  api.repositories.remove(request.caller, id);
  Reply reply = Reply::none();
  reply.subject = id.str();
  return reply;
}

std::unique_ptr<BodySink> import_bundle(Api& api, const Request& request) {
  const std::string label = request.required_query("label");
  auto done = [&api, label, caller = request.caller](base::Fd bundle) {
    return imported(api.repositories.finish_import(caller, label, std::move(bundle)));
  };
  const UploadLimits limits{api.context.options.upload_max_bytes,
                            [&options = api.context.options](size_t bytes) {
                              workspace::require_room(options, "cannot take an upload", bytes);
                            }};
  return fill_file(api.repositories.begin_import(), limits, std::move(done));
}

}  // namespace

void add_repository_routes(Router& router, Api& api) {
  const auto verb = [&api](Reply (*run)(Api&, const Request&)) {
    return Handler([&api, run](const Request& request) { return run(api, request); });
  };
  const auto long_verb = [&api](Reply (*run)(Api&, const Request&, const Progress&)) {
    return LongHandler([&api, run](const Request& request, const Progress& progress) {
      return run(api, request, progress);
    });
  };
  const Handler tips = [&api](const Request& request) {
    return Reply::json(
        tips_json(api.repositories.import_tips(request.caller, request.required_query("label"))));
  };
  const Handler get = [&api](const Request& request) {
    const auto id = find(api, request.caller, request.parameter(0));
    return answer(api, api.repositories.get(request.caller, id), 200);
  };
  const UploadHandler import = [&api](const Request& request) {
    return import_bundle(api, request);
  };

  router.add({.method = "POST",
              .pattern = "/v1/repos",
              .access = Right::none,
              .handler = long_verb(add),
              .lane = Lane::fetch,
              .keep = Keep::joined,
              .resume = [&api](const Request&, const std::string& subject) {
                return resumed(api, subject, 201);
              }});
  router.add(
      {.method = "GET", .pattern = "/v1/repos", .access = Right::none, .handler = verb(list)});
  router.add({.method = "POST",
              .pattern = "/v1/repos/import",
              .access = Right::none,
              .handler = import,
              .query = {"label"},
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = [](const Request&, const std::string& subject) {
                return imported(workspace::ImportedWork::parse(subject));
              }});
  router.add({.method = "GET",
              .pattern = "/v1/repos/import",
              .access = Right::none,
              .handler = tips,
              .query = {"label"}});
  router.add({.method = "GET", .pattern = "/v1/repos/{}", .access = Right::none, .handler = get});
  router.add({.method = "DELETE",
              .pattern = "/v1/repos/{}",
              .access = Right::none,
              .handler = verb(remove),
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = resumed_none});
  router.add({.method = "POST",
              .pattern = "/v1/repos/{}/fetch",
              .access = Right::none,
              .handler = long_verb(fetch),
              .lane = Lane::fetch,
              .keep = Keep::joined,
              .resume = [&api](const Request&, const std::string& subject) {
                return resumed(api, subject, 200);
              }});
}

}  // namespace moorage::daemon
