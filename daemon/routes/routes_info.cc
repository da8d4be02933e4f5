#include <unistd.h>

#include <array>

#include "backends/remote/machines.h"
#include "base/log.h"
#include "base/os/files.h"
#include "daemon/routes/metrics_page.h"
#include "daemon/routes/routes.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/placement.h"
#include "workspace/context/free_space.h"

namespace moorage::daemon {
namespace {

// Reported until somebody has taken these files away.
void tell_of_lost_work(const std::string& directory, InfoView& view) {
  const size_t count = base::list_directory_if_exists(directory).size();
  if (count == 0) return;
  view.checks.push_back(
      {"state.db", false,
       "it does not list " +
           (count == 1 ? "a layer or journal, which is kept in "
                       : std::to_string(count) + " layers and journals, which are kept in ") +
           directory,
       "if an older state.db was restored, take what you need from this directory, "
       "then remove it"});
}

void tell_of_room(const workspace::DiskRoom& room, InfoView& view) {
  constexpr std::array<std::string_view, 3> kEffects{"", "; work that needs space cannot start",
                                                     "; commands that write are ended"};
  const auto level = static_cast<size_t>(room.level());
  view.checks.push_back({"disk room", level == 0, room.text() + std::string(kEffects.at(level)),
                         level == 0 ? "" : "moorage gc --explain lists what can be removed"});
  view.space = {room.space.total_bytes, room.space.free_bytes, 0};
}

std::string storage_of(const InfoSource& source) {
  for (const auto& check : source.host.checks) {
    if (check.name == "storage") return check.text;
  }
  return {};  // the overlay's own check gives the reason
}

// The kind of disk limit on this host, and how to get a better one.
backends::Check check_of_quota(const layers::DiskQuota& quota) {
  backends::Check check{"disk quota", true, quota.name(), ""};
  if (!quota.refuses_bytes()) {
    check.hint =
        "the daemon measures, and ends commands some MiB over a disk limit; to have the kernel "
        "refuse at the limit, put the store on btrfs, or on ext4 or XFS mounted with prjquota";
  } else if (!quota.refuses_files()) {
    check.hint = "the kernel enforces the limit of bytes; the daemon checks the number of files";
  }
  return check;
}

decltype(InfoView::backends) backends_of(backends::Registry& registry) {
  decltype(InfoView::backends) found;
  for (const auto& name : registry.names())
    found.emplace_back(name, registry.get(name).capabilities());
  return found;
}

decltype(InfoView::places) places_of(backends::Registry& registry) {
  decltype(InfoView::places) found;
  for (const auto& name : registry.names()) {
    auto* machines = registry.get(name).machines();
    if (!machines) continue;
    if (auto places = machines->places(); !places.empty()) found.emplace(name, std::move(places));
  }
  return found;
}

Reply health(Api&, const Request&) { return Reply::none(); }

Reply config(Api&, const InfoSource& source, const Request&) {
  return Reply::json(settings_json(source.policy.shown()));
}

Reply reload(Api&, const InfoSource& source, const Request& request) {
  JsonFields::parse(request.body).finish();
  return Reply::json(reload_json(source.policy.run()));
}

Reply info(Api& api, const InfoSource& source, const Request& request) {
  InfoView view = source.host;
  auto& store = api.context.store;
  view.backends = backends_of(api.registry);  // an engine may have started or stopped since
  view.places = places_of(api.registry);
  view.checks.push_back(check_of_quota(api.context.storage.quota()));
  tell_of_room(workspace::look_at_room(api.context.options), view);
  view.workspaces = state_db::WorkspaceTable(store).count_live();
  view.sandboxes = state_db::SandboxTable(store).in_state(state_db::SandboxState::running).size();
  view.execs_running = state_db::ExecTable(store).count_running();
  tell_of_lost_work(api.context.options.lost(), view);
  const auto rules = api.context.options.placement_rules->get();
  view.rules = rules->size();
  view.own_rules = workspace::rules_for(*rules, request.caller.uid);
  if (api.replica.is_on()) view.replica = api.replica.status();
  return Reply::json(info_json(view));
}

Reply top(Api& api, const Request& request) {
  return Reply::json(top_json(api.top.look(request.caller, request.query_flag("mine")),
                              space_of(api.context.options.store)));
}

Reply doctor(Api& api, const InfoSource& source, const Request& request) {
  return Reply::json(
      diagnosis_json(api.doctor.look(request.query_flag("deep")), storage_of(source)));
}

Reply doctor_fix(Api& api, const InfoSource& source, const Request& request) {
  const bool deep = body_of(request, [](JsonFields& fields) { return fields.flag("deep"); });
  return Reply::json(diagnosis_json(api.doctor.fix(deep), storage_of(source)));
}

Reply events(Api&, const InfoSource& source, const Request& request) {
  const auto since = static_cast<int64_t>(request.query_number("since").value_or(0));
  return Reply::stream(
      stream_events(source.events, request.caller, since, request.query_flag("follow")),
      kLinesType);
}

}  // namespace

InfoView look_at_host(Api& api, const backends::ProbeOptions& options) {
  InfoView info;
  info.version = MOORAGE_VERSION;
  info.pid = ::getpid();
  info.store_id = api.store.store_id();
  info.store = options.store;
  info.kernel = backends::kernel_release();
  info.cgroup = backends::cgroup_kind();
  info.checks = backends::probe_host(options);
  for (const auto& check : info.checks) {
    if (check.ok) continue;
    base::log(base::LogLevel::warning, "host.check",
              {{"name", check.name}, {"found", check.text}, {"hint", check.hint}});
  }
  info.backends = backends_of(api.registry);
  return info;
}

void add_info_routes(Router& router, Api& api, const InfoSource& source) {
  const RouteTable routes(router, api);
  const auto shown = [&source](Reply (*run)(Api&, const InfoSource&, const Request&)) {
    return [&source, run](Api& services, const Request& request) {
      return run(services, source, request);
    };
  };
  routes.add("GET /v1/health", Right::none, health);
  routes.add("GET /v1/info", Right::none, shown(info));
  routes.add("GET /v1/config", Right::none, shown(config));
  routes.add("POST /v1/config/reload", Access::root(), shown(reload), {.lane = Lane::slow});
  routes.add("GET /v1/top", Right::read, top, {.query = {"mine"}, .lane = Lane::look});
  routes.add("GET /v1/doctor", Access::root(), shown(doctor),
             {.query = {"deep"}, .lane = Lane::slow});
  routes.add("POST /v1/doctor", Access::root(), shown(doctor_fix), {.lane = Lane::slow});
  routes.add("GET /v1/events", Right::read, shown(events), {.query = {"since", "follow"}});
}

void add_metrics_route(Router& router, const MetricsPage& page) {
  const Handler metrics = [&page](const Request&) {
    Reply reply;
    reply.content_type = kMetricsType;
    reply.body = page.text();
    return reply;
  };
  router.add({.method = "GET", .pattern = "/metrics", .access = Right::none, .handler = metrics});
}

}  // namespace moorage::daemon
