// The API's table, one function a group; docs/openapi.yaml says the same in its own words. A
// literal path stands before a pattern that would match it too.
#pragma once

#include <functional>
#include <vector>

#include "daemon/event_stream.h"
#include "daemon/json_views.h"
#include "daemon/router.h"
#include "workspace/archives.h"
#include "workspace/best_of.h"
#include "workspace/doctor.h"
#include "workspace/execs.h"
#include "workspace/gc.h"
#include "workspace/moves.h"
#include "workspace/quota_watch.h"
#include "workspace/repositories.h"
#include "workspace/snapshots.h"
#include "workspace/store_usage.h"
#include "workspace/workspaces.h"

namespace moorage::daemon {

class MetricsPage;

// What the handlers speak to; it outlives the router.
struct Api {
  workspace::Context& context;
  workspace::Repositories& repositories;
  workspace::Workspaces& workspaces;
  workspace::Execs& execs;
  workspace::Archives& archives;
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
  InfoView host;  // what does not change while we run; space and counts are filled at each question
  const workspace::Replica* replica = nullptr;  // the copy elsewhere
};

// Of a request that is repeated after its effect, and whose answer says nothing of it: 204.
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
