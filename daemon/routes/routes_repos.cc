#include "daemon/json/json_object.h"
#include "daemon/routes/routes.h"
#include "workspace/context/free_space.h"

namespace moorage::daemon {
namespace {

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
  const std::string subject = row.id.str();
  return Reply::json(repository_json(complete(api, std::move(row))), status, subject);
}

// For a repository cloned or fetched before the daemon died. If it was removed since, answers
// not_found: a repeat does not bring it back.
template <int status>
Reply resume_fetch(Api& api, const Request&, const std::string& subject) {
  const auto id = base::RepoId::parse(subject).value();
  return answer(api, state_db::RepositoryTable(api.context.store).get(id), status);
}

Reply imported(const workspace::ImportedWork& work) {
  const JsonObject object{{"repo", work.repo.str()},
                          {"head_commit", work.head_commit},
                          {"work_commit", work.work_commit},
                          {"raw_commit", work.raw_commit}};
  return Reply::json(text_of(object), 201, work.repo.str());
}

Reply resume_import(Api&, const Request&, const std::string& subject) {
  return imported(workspace::ImportedWork::parse(subject));
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
                std::to_string(found.size()) + " repositories are called '" + text + "'",
                "use its id; moorage repo ls lists them");
  }
  if (found.empty()) throw Error(Code::not_found, "there is no repository '" + text + "'");
  return found.front();
}

Reply add(Api& api, const Request& request, const Progress& progress) {
  const auto url = body_of(request, [](JsonFields& fields) { return fields.required_text("url"); });
  return answer(api, api.repositories.add(request.caller, url, progress), 201);
}

Reply fetch(Api& api, const Request& request, const Progress& progress) {
  JsonFields::parse(request.body).finish();
  const auto id = find(api, request.caller, request.parameter(0));
  auto row = api.context.metrics.counted(
      Counted::fetch, [&] { return api.repositories.fetch(request.caller, id, progress); });
  return answer(api, std::move(row), 200);
}

Reply list(Api& api, const Request& request) {
  std::vector<RepositoryView> views;
  for (auto& row : api.repositories.list(request.caller))
    views.push_back(complete(api, std::move(row)));
  return Reply::json(repositories_json(views));
}

Reply get(Api& api, const Request& request) {
  const auto id = find(api, request.caller, request.parameter(0));
  return answer(api, api.repositories.get(request.caller, id), 200);
}

Reply tips(Api& api, const Request& request) {
  const auto tips = api.repositories.import_tips(request.caller, request.required_query("label"));
  return Reply::json(text_of({{"tips", boost::json::array(tips.begin(), tips.end())}}));
}

Reply remove(Api& api, const Request& request) {
  const auto id = find(api, request.caller, request.parameter(0));
  api.repositories.remove(request.caller, id);
  return Reply::none(id.str());
}

class BundleSink : public BodySink {
 public:
  BundleSink(Api& api, const Request& request)
      : api_(api),
        caller_(request.caller),
        source_{request.required_query("label"), request.query_text("origin").value_or("")},
        file_(api.repositories.begin_import(source_)) {}
  Taken write(std::string_view piece) override {
    bytes_ += piece.size();
    check_body_size(bytes_, api_.context.options);
    workspace::require_room(api_.context.options, "cannot take an upload", piece.size());
    base::write_all(file_.get(), piece);
    return Taken::all;
  }
  Reply finish() override {
    return imported(api_.repositories.finish_import(caller_, source_, std::move(file_)));
  }

 private:
  Api& api_;
  const Caller caller_;
  const workspace::ImportSource source_;
  base::Fd file_;
  uint64_t bytes_ = 0;
};

std::unique_ptr<BodySink> import_bundle(Api& api, const Request& request) {
  return std::make_unique<BundleSink>(api, request);
}

}  // namespace

void add_repository_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("POST /v1/repos", Right::none, add,
             {.lane = Lane::fetch, .keep = Keep::joined, .resume = resume_fetch<201>});
  routes.add("GET /v1/repos", Right::none, list);
  routes.add("POST /v1/repos/import", Right::none, import_bundle,
             {.query = {"label", "origin"},
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = resume_import});
  routes.add("GET /v1/repos/import", Right::none, tips, {.query = {"label"}});
  routes.add("GET /v1/repos/{}", Right::none, get);
  routes.add("DELETE /v1/repos/{}", Right::none, remove,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resumed_none});
  routes.add("POST /v1/repos/{}/fetch", Right::none, fetch,
             {.lane = Lane::fetch, .keep = Keep::joined, .resume = resume_fetch<200>});
}

}  // namespace moorage::daemon
