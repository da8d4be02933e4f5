#include "daemon/serve.h"

#include <malloc.h>
#include <unistd.h>

#include "backends/cgroups/sandbox_label.h"
#include "base/error.h"
#include "base/log.h"
#include "daemon/http/server.h"
#include "daemon/process_setup.h"
#include "daemon/rescue.h"
#include "daemon/routes/metrics_page.h"
#include "daemon/routes/routes.h"
#include "state_db/open_store.h"
#include "state_db/store.h"
#include "state_db/store_lock.h"
#include "state_db/tables/idempotency.h"
#include "workspace/recovery/sandbox_ids.h"

namespace moorage::daemon {
namespace {

using std::chrono::seconds;
using workspace::Services;

constexpr int64_t kKeptEvents = 1'000'000;
constexpr seconds kLeave{3};
constexpr seconds kLookPause{5};
constexpr seconds kMeasurePause{600};
constexpr seconds kRetentionPause{600};

std::string name_prefix(const std::string& store_id) { return "moorage-" + store_id + "-"; }

// Nothing can be acknowledged any more; the next start checks the state on the disk.
[[noreturn]] void exit_failed(const std::string& what) {
  base::log(base::LogLevel::error, "daemon.store_failed",
            {{"what", what}, {"effect", "exit; the next start verifies the data"}});
  _exit(1);
}

void tidy(state_db::Store& store) {
  state_db::IdempotencyKeys(store).expire();
  store.trim_events(kKeptEvents);
  store.refill_reserve();
  malloc_trim(0);  // returns heap memory after a burst of large answers
}

void set_up(const Settings& settings) {
  if (geteuid() != 0) {
    throw base::Error(base::Code::permission_denied,
                      "must run as root: it creates namespaces, mounts and control groups",
                      "run sudo mooraged, or ./quickstart to install it as a service");
  }
  set_up_process();
  base::set_up_log(settings.log);
  for (const auto& name : settings.unknown_variables) {
    base::log(base::LogLevel::warning, "config.unknown_variable", {{"name", name}});
  }
  base::on_failed_sync(exit_failed);
}

void start_timers(Server& server, const Settings& settings, Services& services,
                  KeyedAnswers& answers, MetricsPage& metrics_page, PolicyReload& policy) {
  server.every(seconds(1), [&] {
    if (take_hangup()) policy.run_logged();
  });
  server.every(seconds(1), [&] {
    if (services.store.failed()) exit_failed("state.db could not be read or written");
    answers.write_later();
    services.store.checkpoint();
  });
  server.every(seconds(1), [&] { services.guard.look(); });
  server.every(seconds(1), [&] { services.leases.sweep(); });
  server.every(seconds(1), [&] { services.idle_keeper.look(); });
  server.every(seconds(1), [&] { services.quotas.measure_rested(); });
  server.every(seconds(1), [&] { services.measurer.catch_up(); });
  server.every(seconds(1), [&] {
    services.incoming.tick();
    services.remote.tick();
  });
  server.every(seconds(1), [&] { services.best_of_driver.tick(); });
  server.every(seconds(1), [&] { services.waiters.look(); });
  server.every(seconds(2), [&] { services.snapshot_keeper.look(); });
  server.every(kRetentionPause, [&] { services.output_retention.sweep(); });
  metrics_page.look();
  server.every(kMeasurePause, [&] { services.usage.request(); });
  server.every(kLookPause, [&] { metrics_page.look(); });
  server.every(settings.sync_interval, [&] { services.sealing.sync_active(); });
  server.every(settings.reconcile_interval, [&] {
    services.reconciler.periodic();
    tidy(services.store);
  });
}

// Serves until a signal. False: requests still ran when the drain time was over.
bool run(Server& server, const Settings& settings, Services& services, KeyedAnswers& answers) {
  server.listen(listen_for_clients(settings.socket, settings.group));
  base::log(base::LogLevel::info, "daemon.ready",
            {{"pid", getpid()},
             {"version", MOORAGE_VERSION},
             {"socket", settings.socket},
             {"store", settings.store()},
             {"store_id", services.store.store_id()}});
  tell_service_manager("READY=1");
  services.reconciler.after_ready();
  services.replica.start();

  const bool drained = server.run(true);
  services.waiters.leave();  // destroy callers before what they call
  answers.write_later();
  tell_service_manager("STOPPING=1");
  unlink(settings.socket.c_str());
  base::log(base::LogLevel::info, "daemon.stopped", {{"drained", drained ? "yes" : "no"}});
  return drained;
}

}  // namespace

int serve(Settings settings) {
  set_up(settings);
  // Creating an image, or waiting for another host to release it, exceeds the usual start timeout.
  if (!settings.image.image.empty()) tell_service_manager("EXTEND_TIMEOUT_USEC=1800000000");
  const auto image = layers::StoreImage::open(settings.image);
  base::Fd only_here;
  const auto opened =
      state_db::open_store({.directory = settings.store(),
                            .reserve_bytes = settings.reserve_bytes,
                            .before_changes = [&](const std::string& store_id) {
                              only_here = state_db::lock_store_id(store_id, settings.store());
                              backends::refuse_foreign_sandboxes(name_prefix(store_id));
                            }});
  if (opened.unreadable) return serve_rescue(*opened.unreadable, settings);
  state_db::Store& store = *opened.store;
  if (!only_here) only_here = state_db::lock_store_id(store.store_id(), settings.store());  // new
  workspace::require_disk_ids(store, settings.services.workspace);
  EventHub events(store);
  settings.services.backends.name_prefix = name_prefix(store.store_id());
  Services services(store, settings.services);
  const workspace::BestOfDriver::Work best_of_work(services.best_of_driver);
  const workspace::QuotaWatch::Work quota_work(services.quotas);
  PolicyReload policy(services, settings.shown, [&settings] {
    const Settings fresh = settings.read_again();
    return PolicyRead{fresh.services.workspace.placement_rules->get(), fresh.shown};
  });
  const InfoSource info{
      .events = events, .policy = policy, .host = look_at_host(services, settings.probe)};
  services.reconciler.at_start();
  services.best_of_driver.at_start();

  Router router;
  MetricsPage metrics_page(router, services);
  add_all_routes(router, services, info);
  add_metrics_route(router, metrics_page);
  WorkerPools worker_pools(settings.threads);
  KeyedAnswers answers(store);
  Dispatcher dispatcher(worker_pools, answers, &services.waiters);
  Server server({router, dispatcher, worker_pools, settings.limits});
  start_timers(server, settings, services, answers, metrics_page, policy);

  const bool drained = run(server, settings, services, answers);
  services.watcher.stop();
  // A verb that outlasts the drain time is cut off as a crash would: its intent is recorded. The
  // same goes for a long repair, and for a replica round whose disk does not answer.
  if (!drained || !services.reconciler.stop_repairs(kLeave) || !services.replica.stop(kLeave))
    _exit(0);
  exit_after(kLeave);
  return 0;
}

}  // namespace moorage::daemon
