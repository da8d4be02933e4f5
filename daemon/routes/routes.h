// The API's table, one function per group; docs/openapi.yaml describes the same routes. A literal
// path comes before any pattern that would match it too.
#pragma once

#include <vector>

#include "daemon/http/router.h"
#include "daemon/json/json_views.h"
#include "daemon/routes/event_stream.h"
#include "workspace/services/services.h"

namespace moorage::daemon {

class MetricsPage;

using Api = workspace::Services;  // what the handlers call; it outlives the router

// The rest of what the info routes show.
struct InfoSource {
  EventHub& events;
  std::vector<SettingView> settings;
  InfoView host;  // the constant part; space and counts are filled per request
};

// For a request repeated after its effect, whose answer has no body: 204.
inline Reply resumed_none(const Request&, const std::string&) { return Reply::none(); }

void add_repository_routes(Router& router, Api& api);
void add_workspace_routes(Router& router, Api& api);
void add_archive_routes(Router& router, Api& api);
void add_snapshot_routes(Router& router, Api& api);
void add_move_routes(Router& router, Api& api);
void add_best_of_routes(Router& router, Api& api);
void add_file_routes(Router& router, Api& api);
void add_exec_routes(Router& router, Api& api);
void add_lease_routes(Router& router, Api& api);
void add_gc_routes(Router& router, Api& api);
void add_info_routes(Router& router, Api& api, const InfoSource& source);
void add_metrics_route(Router& router, const MetricsPage& page);
void add_all_routes(Router& router, Api& api, const InfoSource& source);

}  // namespace moorage::daemon
