#include "daemon/routes/routes.h"

namespace moorage::daemon {

void RouteTable::add_bound(std::string_view line, Access access, Bound handler,
                           const RouteRules& rules) const {
  const size_t space = line.find(' ');
  Route route{.method = std::string(line.substr(0, space)),
              .pattern = std::string(line.substr(space + 1)),
              .access = access,
              .handler = std::move(handler),
              .query = rules.query,
              .lists = rules.lists,
              .lane = rules.lane,
              .keep = rules.keep,
              .conditional = rules.conditional};
  if (rules.resume) {
    route.resume = [&api = api_, resume = rules.resume](const Request& request,
                                                        const std::string& subject) {
      return resume(api, request, subject);
    };
  }
  router_.add(std::move(route));
}

Reply workspace_reply(const workspace::WorkspaceView& view, int status) {
  return Reply::json(workspace_json(view), status, view.row.id.str());
}

void check_body_size(uint64_t bytes, const workspace::Options& options) {
  if (bytes <= options.upload_max_bytes) return;
  throw Error(Code::invalid_argument,
              "the body is larger than " + std::to_string(options.upload_max_bytes) + " bytes",
              "the limit is the setting api.max_body_bytes");
}

Reply resumed_none(Api&, const Request&, const std::string&) { return Reply::none(); }

namespace {

// In normal operation the route of rescue mode answers that there is nothing to rescue.
Reply nothing_to_rescue(Api&, const Request& request) {
  if (!request.caller.root()) {
    throw Error(Code::permission_denied, "needs root: exports any user's workspace");
  }
  throw Error(Code::conflict, "state.db is intact, so there is nothing to rescue",
              "use moorage export NAME FILE to save a whole workspace");
}

}  // namespace

void add_all_routes(Router& router, Api& api, const InfoSource& source) {
  add_info_routes(router, api, source);
  add_usage_routes(router, api);
  add_repository_routes(router, api);
  add_snapshot_routes(router, api);
  add_move_routes(router, api);
  add_best_of_routes(router, api);
  add_archive_routes(router, api);  // before {}, which matches "import" too
  add_workspace_routes(router, api);
  add_file_routes(router, api);
  add_exec_routes(router, api);
  add_lease_routes(router, api);
  add_network_routes(router, api);
  add_credential_routes(router, api);
  add_approval_routes(router, api);
  add_gc_routes(router, api);
  RouteTable(router, api).add("GET /v1/rescue/workspaces/{}", Right::none, nothing_to_rescue);
}

}  // namespace moorage::daemon
