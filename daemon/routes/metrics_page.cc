#include "daemon/routes/metrics_page.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/free_space.h"
#include "workspace/context/metrics.h"
#include "workspace/services/services.h"

namespace moorage::daemon {
namespace {

using base::Exposition;
using state_db::LifeCycle;
using enum base::Exposition::Type;

uint64_t size_of_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

// A field of /proc/self/stat, by its number in proc(5), 3 or higher.
uint64_t stat_field(const std::string& stat, int wanted) {
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= wanted; ++number) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

void tell_process(Exposition& page) {
  const std::string stat = base::read_file("/proc/self/stat");
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const double cpu = static_cast<double>(stat_field(stat, 14) + stat_field(stat, 15)) / ticks;
  const uint64_t open = base::list_directory("/proc/self/fd").size() - 1;  // its own
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  page.metric("process_cpu_seconds_total", counter, "CPU time of the daemon, user and system.")
      .sample(cpu);
  page.metric("process_resident_memory_bytes", gauge, "Resident memory of the daemon.")
      .sample(stat_field(stat, 24) * page_bytes);
  page.metric("process_virtual_memory_bytes", gauge, "Address space of the daemon.")
      .sample(stat_field(stat, 23));
  page.metric("process_threads", gauge, "Threads of the daemon.").sample(stat_field(stat, 20));
  page.metric("process_open_fds", gauge, "Open file descriptors of the daemon.").sample(open);
  page.metric("process_max_fds", gauge, "Most file descriptors that the daemon may open.")
      .sample(uint64_t{files.rlim_cur});
}

void tell_http(Exposition& page, const Router& router) {
  const RequestCounters& traffic = router.traffic();
  page.metric("moorage_http_requests_total", counter,
              "Answered requests; route \"none\": refused before routing.");
  const auto tell = [&page](const Answers& answers, std::string_view method,
                            std::string_view route) {
    for (int status = Answers::kFirst; status <= Answers::kLast; ++status) {
      const uint64_t count = answers.count(status);
      const std::string text = std::to_string(status);
      if (count > 0) page.sample(count, {{"method", method}, {"route", route}, {"status", text}});
    }
  };
  const auto& routes = router.routes();
  for (size_t i = 0; i < routes.size(); ++i) {
    tell(traffic.routes.at(i), routes[i].method, routes[i].pattern);
  }
  tell(traffic.no_route, "none", "none");
  page.metric("moorage_http_connections", gauge, "Open connections.")
      .sample(traffic.connections.load());
}

void tell_verbs(Exposition& page, const workspace::Metrics& metrics) {
  using workspace::kVerbNames;
  page.metric("moorage_verb_duration_seconds", histogram, "Duration of successful operations.");
  for (size_t i = 0; i < kVerbNames.size(); ++i)
    page.sample(metrics.verbs.at(i).seconds, {{"verb", kVerbNames.at(i)}});
  page.metric("moorage_verb_refusals_total", counter, "Failed operations, by error code.");
  for (size_t i = 0; i < kVerbNames.size(); ++i) {
    const auto& refusals = metrics.verbs.at(i).refusals;
    for (size_t code = 0; code < refusals.size(); ++code) {
      if (refusals.at(code).value() == 0) continue;
      page.sample(refusals.at(code), {{"verb", kVerbNames.at(i)},
                                      {"code", base::code_name(static_cast<base::Code>(code))}});
    }
  }
  page.metric("moorage_sandbox_start_duration_seconds", histogram,
              "Time from recording a sandbox to the first answer of its warden.")
      .sample(metrics.sandbox_start);
  page.metric("moorage_exec_start_duration_seconds", histogram,
              "Time from recording an exec to the answer of the warden of a running sandbox.")
      .sample(metrics.exec_start);
  page.metric("moorage_exec_duration_seconds", histogram, "Time from start to end of an exec.")
      .sample(metrics.exec_total);
  page.metric("moorage_exec_output_bytes_total", counter, "Size of the kept output of ended execs.")
      .sample(metrics.output_bytes);
  page.metric("moorage_execs_ended_total", counter,
              "Ended execs by result; category \"none\": only the state is known.");
  const auto& states = LifeCycle<state_db::ExecState>::kNames;
  for (size_t state = 0; state < states.size(); ++state) {
    for (size_t i = 0; i < workspace::Metrics::kCategories; ++i) {
      const auto& ended = metrics.ended.at(state).at(i);
      const bool none = i + 1 == workspace::Metrics::kCategories;
      const std::string_view category = none ? "none" : state_db::kExecCategoryNames.at(i);
      if (ended.value() > 0) page.sample(ended, {{"state", states[state]}, {"category", category}});
    }
  }
}

void tell_network(Exposition& page, const workspace::Metrics& metrics, uint64_t open) {
  page.metric("moorage_network_connections", gauge, "Open connections of sandboxes.").sample(open);
  page.metric("moorage_network_connections_total", counter, "Connections of sandboxes.")
      .sample(metrics.network_connected);
  page.metric("moorage_network_bytes_total", counter, "Bytes that sandboxes received and sent.")
      .sample(metrics.network_bytes_in, {{"direction", "in"}})
      .sample(metrics.network_bytes_out, {{"direction", "out"}});
  page.metric("moorage_network_refused_total", counter,
              "Names and connections that a network policy refused.")
      .sample(metrics.network_refused);
  page.metric("moorage_network_over_limit_total", counter, "Connections that a limit refused.")
      .sample(metrics.network_over_limit);
}

void tell_copy(Exposition& page, const workspace::ReplicaStatus& status) {
  using workspace::ReplicaState;
  page.metric("moorage_replica_up", gauge, "1 if the last update of the replica succeeded, else 0.")
      .sample(uint64_t{status.state == ReplicaState::following ? 1U : 0U});
  if (status.behind_ms) {
    page.metric("moorage_replica_behind_seconds", gauge,
                "Age of the replica; absent before the first full copy.")
        .sample(static_cast<double>(*status.behind_ms) / 1000);
  }
  page.metric("moorage_replica_rounds_total", counter, "Updates of the replica.")
      .sample(status.rounds);
  page.metric("moorage_replica_failures_total", counter, "Failed updates of the replica.")
      .sample(status.failures);
  page.metric("moorage_replica_written_bytes_total", counter, "Bytes written to the replica.")
      .sample(status.bytes);
}

// The samples of the metric just begun, one for each of these names.
template <typename Names, typename Values>
void tell_each(Exposition& page, std::string_view label, const Names& names, const Values& values) {
  for (size_t i = 0; i < values.size(); ++i) page.sample(values.at(i), {{label, names.at(i)}});
}

}  // namespace

struct MetricsPage::Seen {
  state_db::WorkspaceTable::Counts workspaces{};
  state_db::SandboxTable::Counts sandboxes{};
  uint64_t execs = 0;
};

MetricsPage::MetricsPage(const Router& router, workspace::Services& services)
    : router_(router), services_(services), seen_(std::make_shared<const Seen>()) {}

MetricsPage::~MetricsPage() = default;

void MetricsPage::look() {
  Seen seen;
  seen.workspaces = state_db::WorkspaceTable(services_.context.store).count_by_state();
  seen.sandboxes = state_db::SandboxTable(services_.context.store).count_by_state();
  seen.execs = state_db::ExecTable(services_.context.store).count_running();
  const auto seen_now = std::make_shared<const Seen>(seen);
  const std::lock_guard lock(mutex_);
  seen_ = seen_now;
}

std::string MetricsPage::text() const {
  Exposition page;
  const auto seen = [this] {
    const std::lock_guard lock(mutex_);
    return seen_;
  }();
  page.metric("moorage_build_info", gauge, "Always 1; the label holds the version.")
      .sample(uint64_t{1}, {{"version", MOORAGE_VERSION}});
  page.metric("moorage_workspaces", gauge, "Workspaces not purged, by state.");
  tell_each(page, "state", LifeCycle<state_db::WorkspaceState>::kNames, seen->workspaces);
  page.metric("moorage_sandboxes", gauge, "Sandboxes not destroyed, by state.");
  tell_each(page, "state", LifeCycle<state_db::SandboxState>::kNames, seen->sandboxes);
  page.metric("moorage_execs_running", gauge, "Running execs.").sample(seen->execs);
  const workspace::Metrics& metrics = services_.context.metrics;
  tell_verbs(page, metrics);
  tell_http(page, router_);
  tell_network(page, metrics, services_.networks.open_connections());
  const std::string& store = services_.context.options.store;
  const auto room = workspace::look_at_room(services_.context.options);
  const auto& space = room.space;
  page.metric("moorage_disk_size_bytes", gauge, "Size of the store's file system.")
      .sample(space.total_bytes);
  page.metric("moorage_disk_free_bytes", gauge, "Free space of the store's file system, as in df.")
      .sample(space.free_bytes);
  page.metric("moorage_disk_free_inodes", gauge, "Free inodes of the store's file system.")
      .sample(space.free_inodes);
  page.metric("moorage_disk_room_level", gauge,
              "0: enough space; 1: refuses work that needs space; 2: ends commands that write.")
      .sample(static_cast<uint64_t>(room.level()));
  page.metric("moorage_disk_kept_free_bytes", gauge, "Free space below which the level is 1.")
      .sample(room.min_free_bytes);
  page.metric("moorage_execs_ended_for_space_total", counter, "Commands ended by the disk guard.")
      .sample(metrics.ended_for_space);
  page.metric("moorage_sandboxes_stopped_for_space_total", counter,
              "Sandboxes stopped by the disk guard.")
      .sample(metrics.stopped_for_space);
  page.metric("moorage_execs_ended_for_quota_total", counter,
              "Commands ended because their workspace exceeded its disk limit.")
      .sample(metrics.ended_for_quota);
  page.metric("moorage_gc_collected_total", counter, "Items that gc removed, by kind.");
  tell_each(page, "rung", workspace::kGcRungNames, metrics.collected);
  page.metric("moorage_gc_collected_bytes_total", counter, "Bytes that gc freed.")
      .sample(metrics.collected_bytes);
  page.metric("moorage_reserve_bytes", gauge, "Size of the reserve file; 0: released.")
      .sample(size_of_file(store + "/reserve"));
  page.metric("moorage_database_bytes", gauge, "Size of the database without its log.")
      .sample(size_of_file(store + "/state.db"));
  page.metric("moorage_database_wal_bytes", gauge, "Size of the database's write-ahead log.")
      .sample(size_of_file(store + "/state.db-wal"));
  page.metric("moorage_database_commits_total", counter, "Synchronous commits since the start.")
      .sample(services_.context.store.commits());
  if (const auto use = services_.usage.last()) {
    page.metric("moorage_store_bytes", gauge, "Disk use of the store by part, when last measured.");
    tell_each(page, "part", workspace::kStorePartNames, use->parts);
    page.metric("moorage_store_measured_timestamp_seconds", gauge, "Time of the last measurement.")
        .sample(static_cast<double>(use->wall_ms) / 1000);
  }
  if (services_.replica.is_on()) tell_copy(page, services_.replica.status());
  tell_process(page);
  return page.text();
}

}  // namespace moorage::daemon
