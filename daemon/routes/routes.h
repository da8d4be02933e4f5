// The API's table, one function per group; docs/openapi.yaml describes the same routes. A literal
// path comes before any pattern that would match it too.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backends/probe.h"
#include "daemon/http/router.h"
#include "daemon/json/json_fields.h"
#include "daemon/json/json_views.h"
#include "daemon/routes/event_stream.h"
#include "daemon/routes/policy_reload.h"
#include "workspace/services/services.h"

namespace moorage::daemon {

class MetricsPage;

using Api = workspace::Services;  // what the handlers call; it outlives the router
using Counted = workspace::Verb;

// The rest of what the info routes show.
struct InfoSource {
  EventHub& events;
  PolicyReload& policy;
  InfoView host;  // the constant part; space and counts are filled per request
};
// Probes the host and its backends (about 10 ms); logs a warning for each failed check.
InfoView look_at_host(Api& api, const backends::ProbeOptions& options);

// What a route takes besides its handler; see Route.
struct RouteRules {
  std::vector<std::string> query = {};
  std::vector<std::string> lists = {};
  Lane lane = Lane::quick;
  Keep keep = Keep::answer;
  Reply (*resume)(Api&, const Request&, const std::string& subject) = nullptr;
  bool conditional = false;
};

// Adds routes whose handlers are functions of the API and the request.
class RouteTable {
 public:
  RouteTable(Router& router, Api& api) : router_(router), api_(api) {}

  // `line`: "GET /v1/execs/{}". `run`: takes (Api&, const Request&), a long one also Progress;
  // returns a Reply, or the BodySink of an upload.
  template <typename Run>
  void add(std::string_view line, Access access, Run run, const RouteRules& rules = {}) const {
    using workspace::Progress;
    if constexpr (std::is_invocable_v<Run, Api&, const Request&, const Progress&>) {
      const LongHandler handler = [&api = api_, run](const Request& request,
                                                     const Progress& progress) {
        return run(api, request, progress);
      };
      add_bound(line, access, handler, rules);
    } else {
      using Answer = std::invoke_result_t<Run, Api&, const Request&>;
      const std::function<Answer(const Request&)> handler =
          [&api = api_, run](const Request& request) { return run(api, request); };
      add_bound(line, access, handler, rules);
    }
  }

 private:
  using Bound = decltype(Route::handler);
  void add_bound(std::string_view line, Access access, Bound handler,
                 const RouteRules& rules) const;

  Router& router_;
  Api& api_;
};

Reply workspace_reply(const workspace::WorkspaceView& view, int status = 200);
// For a request repeated after its effect, whose answer has no body: 204.
Reply resumed_none(Api& api, const Request& request, const std::string& subject);
// The same for a verb that answers with the workspace it changed.
template <auto service>
Reply resumed(Api& api, const Request&, const std::string& subject) {
  return workspace_reply((api.*service).resume(subject));
}

// What `read` makes of the JSON body; fields that it does not read are refused.
template <typename Read>
auto body_of(const Request& request, const Read& read) {
  JsonFields fields = JsonFields::parse(request.body);
  auto wanted = read(fields);
  fields.finish();
  return wanted;
}
// Runs a verb on the workspace that the path names, counts it, and shows the workspace.
template <typename Service, typename Verb, typename... Wanted>
Reply run_counted(Counted counted, Api& api, const Request& request, Service& service, Verb verb,
                  const Wanted&... wanted) {
  return workspace_reply(api.context.metrics.counted(
      counted, [&] { return (service.*verb)(request.caller, request.parameter(0), wanted...); }));
}
// Refuses a body that becomes a file when it exceeds the setting api.max_body_bytes.
void check_body_size(uint64_t bytes, const workspace::Options& options);

void add_repository_routes(Router& router, Api& api);
void add_workspace_routes(Router& router, Api& api);
void add_archive_routes(Router& router, Api& api);
void add_snapshot_routes(Router& router, Api& api);
void add_move_routes(Router& router, Api& api);
void add_best_of_routes(Router& router, Api& api);
void add_file_routes(Router& router, Api& api);
void add_exec_routes(Router& router, Api& api);
void add_lease_routes(Router& router, Api& api);
void add_network_routes(Router& router, Api& api);
void add_credential_routes(Router& router, Api& api);
void add_approval_routes(Router& router, Api& api);
void add_gc_routes(Router& router, Api& api);
void add_usage_routes(Router& router, Api& api);
void add_info_routes(Router& router, Api& api, const InfoSource& source);
void add_metrics_route(Router& router, const MetricsPage& page);
void add_all_routes(Router& router, Api& api, const InfoSource& source);

}  // namespace moorage::daemon
