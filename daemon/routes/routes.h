// The API's table, one function per group; docs/openapi.yaml describes the same routes. A literal
// path comes before any pattern that would match it too.
#pragma once

#include <functional>
#include <vector>

#include "daemon/http/router.h"
#include "daemon/json/json_views.h"
#include "daemon/routes/event_stream.h"
#include "workspace/best_of/best_of.h"
#include "workspace/recovery/doctor.h"
#include "workspace/upkeep/gc.h"
#include "workspace/upkeep/quota_watch.h"
#include "workspace/upkeep/store_usage.h"
#include "workspace/verbs/execs.h"
#include "workspace/verbs/export.h"
#include "workspace/verbs/import.h"
#include "workspace/verbs/moves.h"
#include "workspace/verbs/repositories.h"
#include "workspace/verbs/snapshots.h"
#include "workspace/verbs/workspaces.h"

namespace moorage::daemon {

class MetricsPage;

// What the handlers use; it outlives the router.
struct Api {
  workspace::Context& context;
  workspace::RepositoryVerbs& repositories;
  workspace::Workspaces& workspaces;
  workspace::Execs& execs;
  workspace::Archives& archives;
  workspace::Exports& exports;
  workspace::Imports& imports;
  workspace::Snapshots& snapshots;
  workspace::Moves& moves;
  workspace::BestOf& best_of;
  workspace::Comparison& comparison;
  EventHub& events;
  workspace::StoreUsage& usage;
  workspace::Top& top;
  workspace::Doctor& doctor;
  workspace::Gc& gc;
  workspace::QuotaWatch& quotas;
  uint64_t max_body_bytes = 0;
  std::vector<SettingView> settings;
  InfoView host;  // the constant part; space and counts are filled per request
  const workspace::Replica* replica = nullptr;  // may be null
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
void add_info_routes(Router& router, Api& api);
void add_metrics_route(Router& router, const MetricsPage& page);
void add_all_routes(Router& router, Api& api);

}  // namespace moorage::daemon
