// mooraged: only the wiring. Read top to bottom, it shows the daemon's parts and the order in which
// they start: each part uses only earlier ones and is destroyed before them. Only this file knows
// the settings; every layer gets its own small options.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "backends/cgroups/sandbox_label.h"
#include "backends/registry.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "config/load.h"
#include "daemon/arguments.h"
#include "daemon/http/server.h"
#include "daemon/process_setup.h"
#include "daemon/rescue.h"
#include "daemon/routes/host_info.h"
#include "daemon/routes/metrics_page.h"
#include "daemon/routes/routes.h"
#include "layers/store_image.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/open_store.h"
#include "state_db/store.h"
#include "state_db/tables/idempotency.h"
#include "workspace/access/placement.h"
#include "workspace/archive/store.h"
#include "workspace/best_of/best_of.h"
#include "workspace/context/metrics.h"
#include "workspace/recovery/reconcile.h"
#include "workspace/recovery/sandbox_ids.h"
#include "workspace/replica/replica.h"
#include "workspace/replica/restore_store.h"
#include "workspace/upkeep/budgets.h"
#include "workspace/upkeep/disk_guard.h"
#include "workspace/upkeep/idle_stop.h"
#include "workspace/upkeep/output_retention.h"
#include "workspace/upkeep/retention.h"

namespace {

using namespace moorage;
using daemon::Arguments;
using std::chrono::seconds;

constexpr int64_t kKeptEvents = 1'000'000;
constexpr seconds kLeave{3};
constexpr seconds kLookPause{5};
constexpr seconds kMeasurePause{600};
constexpr seconds kRetentionPause{600};

base::LogOptions log_options(const config::LogSettings& settings) {
  using base::LogLevel;
  const LogLevel level = settings.level == "debug"     ? LogLevel::debug
                         : settings.level == "warning" ? LogLevel::warning
                         : settings.level == "error"   ? LogLevel::error
                                                       : LogLevel::info;
  return {.level = level, .json = settings.json, .file = settings.file};
}

repo_cache::RepoCacheOptions repo_options(const config::Settings& settings) {
  repo_cache::RepoCacheOptions options;
  options.root = settings.store.directory + "/repos";
  options.url_policy.file_roots = settings.repo.file_roots;
  options.max_fetch_bytes = settings.repo.max_fetch_bytes;
  options.disk_first_id = settings.ids.disk_first_id;
  options.checkout_threads = settings.repo.checkout_threads;
  const auto& repo = settings.repo;
  if (!repo.https_proxy.empty()) options.environment["https_proxy"] = repo.https_proxy;
  std::string& no_proxy = options.environment["no_proxy"];
  for (const std::string& host : repo.no_proxy) no_proxy += host + ",";
  if (!repo.ca_file.empty()) options.environment["GIT_SSL_CAINFO"] = repo.ca_file;
  return options;
}

std::string name_prefix(const std::string& store_id) { return "moorage-" + store_id + "-"; }

backends::BackendOptions backend_options(const config::Settings& settings,
                                         const std::string& store_id) {
  backends::BackendOptions options;
  options.name_prefix = name_prefix(store_id);
  options.images_directory = settings.store.directory + "/images";
  options.launch_program = settings.libexec_directory + "/moorage-launch";
  options.warden_program = settings.libexec_directory + "/moorage-warden";
  options.allow_process = settings.sandbox.allow_process_backend;
  options.cpu_weight = settings.sandbox.cpu_weight;
  options.disk_rate_bytes = settings.sandbox.disk_rate_bytes;
  options.nested_namespaces = settings.sandbox.nested_namespaces;
  options.docker_socket = settings.docker.socket;
  options.docker_runtime = settings.docker.runtime;
  return options;
}

std::string archive_directory(const config::Settings& settings) {
  const std::string& elsewhere = settings.archive.directory;
  return elsewhere.empty() ? settings.store.directory + "/archive" : elsewhere;
}

workspace::PlacementLimits placement_limits(const config::PolicyLimits& limits) {
  return {.memory_bytes = limits.memory_bytes,
          .cpus = limits.cpus,
          .pids = limits.pids,
          .disk_bytes = limits.disk_bytes};
}

std::vector<workspace::PlacementRule> placement_rules(
    const std::vector<config::PolicyRule>& rules) {
  std::vector<workspace::PlacementRule> converted;
  converted.reserve(rules.size());
  for (const auto& rule : rules) {
    converted.push_back(
        {.name = "policy rule " + std::to_string(converted.size() + 1) + " (" + rule.place + ")",
         .text = rule.text,
         .users = rule.users,
         .groups = rule.groups,
         .labels = rule.labels,
         .backends = rule.backends,
         .min_isolation = workspace::isolation_of_name(rule.min_isolation),
         .default_backend = rule.default_backend,
         .default_runtime = rule.default_runtime,
         .default_image = rule.default_image,
         .usual = placement_limits(rule.usual),
         .most = placement_limits(rule.most)});
  }
  return converted;
}

workspace::Options workspace_options(const config::Settings& settings) {
  workspace::Options options;
  options.store = settings.store.directory;
  options.disk_first_id = settings.ids.disk_first_id;
  options.sandbox_first_id = settings.ids.sandbox_first_id;
  options.sandbox_slots = settings.ids.sandbox_slots;
  options.default_backend = settings.sandbox.backend;
  options.placement_rules = placement_rules(settings.policy);
  options.memory_bytes = settings.sandbox.memory_bytes;
  options.cpus = settings.sandbox.cpus;
  options.pids = settings.sandbox.pids;
  options.sudo = settings.sandbox.sudo;
  options.start_deadline = seconds(settings.sandbox.start_deadline_s);
  options.stop_grace = seconds(settings.sandbox.stop_grace_s);
  options.idle_stop_s = settings.sandbox.idle_stop_s;
  options.max_lifetime_s = settings.sandbox.max_lifetime_s;
  options.fetch_deadline = seconds(settings.repo.fetch_deadline_s);
  options.output_limit_bytes = settings.exec.output_limit_bytes;
  options.workspace_output_bytes = settings.workspace.output_limit_bytes;
  options.default_timeout_ms = settings.exec.default_timeout_s * 1000;
  options.min_free_bytes = settings.store.min_free_bytes;
  options.min_free_inodes = settings.store.min_free_inodes;
  options.disk_limit_bytes = settings.workspace.disk_limit_bytes;
  options.disk_limit_files = settings.workspace.disk_limit_files;
  options.archive_directory = archive_directory(settings);
  options.archive_level = static_cast<int>(settings.archive.level);
  options.archive_threads = settings.archive.threads;
  options.import_max_bytes = settings.archive.import_max_bytes;
  options.undelete_window_ms = settings.workspace.undelete_window_s * 1000;
  return options;
}

workspace::GcRules gc_rules(const config::Settings& settings, workspace::Context& context) {
  workspace::GcRules rules;
  rules.archive_after_ms = settings.gc.archive_after_s * 1000;
  rules.archive_elsewhere = workspace::ArchiveStore(context).is_elsewhere();
  rules.lately = seconds(settings.gc.keep_unused_s);
  return rules;
}

workspace::BudgetLimits budget_limits(const config::Settings& settings) {
  return {.store_bytes = settings.store.budget_bytes,
          .store_files = settings.store.budget_files,
          .repo_bytes = settings.repo.budget_bytes,
          .user_bytes = settings.user.budget_bytes};
}

layers::StoreImageOptions store_image(const config::Settings& settings) {
  return {.directory = settings.store.directory,
          .image = settings.store.image,
          .bytes = settings.store.image_bytes};
}

backends::ProbeOptions probe_options(const config::Settings& settings) {
  return {.store = settings.store.directory,
          .store_image = settings.store.image,
          .docker_socket = settings.docker.socket,
          .disk_first_id = settings.ids.disk_first_id,
          .sandbox_first_id = settings.ids.sandbox_first_id,
          .sandbox_id_slots = settings.ids.sandbox_slots};
}

std::vector<daemon::SettingView> shown_settings(const config::Loaded& loaded) {
  std::vector<daemon::SettingView> views;
  for (const auto& item : loaded.shown) {
    views.push_back({item.name, item.value, item.unit, item.source, item.help});
  }
  return views;
}

daemon::Limits limits(const config::Settings& settings) {
  daemon::Limits limits;
  limits.max_connections = settings.api.max_connections;
  // Keeps room for root, however many connections one user opens.
  limits.max_connections_per_uid = std::max(1U, settings.api.max_connections / 4 * 3);
  limits.json_bytes = settings.api.max_json_bytes;
  return limits;
}

daemon::RescueSetup rescue_setup(const config::Settings& settings) {
  return {
      .rescue = {settings.store.directory, archive_directory(settings), settings.ids.disk_first_id},
      .socket = settings.api.socket,
      .group = settings.api.group,
      .threads = settings.daemon.threads,
      .limits = limits(settings)};
}

// Nothing can be acknowledged any more; the next start checks the state on the disk.
[[noreturn]] void exit_failed(const std::string& what) {
  base::log(base::LogLevel::error, "daemon.store_failed",
            {{"what", what}, {"effect", "exit; the next start verifies"}});
  _exit(1);
}

void exit_if_failed(const state_db::Store& store) {
  if (store.failed()) exit_failed("state.db could not be read or written");
}

void tidy(state_db::Store& store) {
  state_db::IdempotencyKeys(store).expire();
  store.trim_events(kKeptEvents);
  store.refill_reserve();
  malloc_trim(0);  // returns heap memory after a burst of large answers
}

int serve(const config::Loaded& loaded) {
  const auto& settings = loaded.settings;
  if (geteuid() != 0) {
    throw base::Error(base::Code::permission_denied,
                      "must run as root: it creates namespaces, mounts and control groups",
                      "run sudo mooraged, or ./quickstart to install it as a service");
  }
  daemon::set_up_process();
  base::set_up_log(log_options(settings.log));
  for (const auto& name : loaded.unknown_variables) {
    base::log(base::LogLevel::warning, "config.unknown_variable", {{"name", name}});
  }

  base::on_failed_sync(exit_failed);
  // Creating an image, or waiting for another host to release it, exceeds the usual start timeout.
  if (!settings.store.image.empty()) daemon::tell_service_manager("EXTEND_TIMEOUT_USEC=1800000000");
  const auto image = layers::StoreImage::open(store_image(settings));
  const auto opened =
      state_db::open_store({.directory = settings.store.directory,
                            .reserve_bytes = settings.store.reserve_bytes,
                            .before_changes = [](const std::string& store_id) {
                              backends::refuse_foreign_sandboxes(name_prefix(store_id));
                            }});
  if (opened.unreadable) return daemon::serve_rescue(*opened.unreadable, rescue_setup(settings));
  state_db::Store& store = *opened.store;
  workspace::require_disk_ids(store, workspace_options(settings));
  daemon::EventHub events(store);
  backends::Registry registry(backend_options(settings, store.store_id()));
  repo_cache::RepoCache repos(repo_options(settings));
  repo_cache::BaseTrees base_trees(repos);
  const auto storage =
      layers::make_overlay_storage({settings.store.directory, settings.ids.disk_first_id,
                                    settings.store.disk_quota == "watched"});
  base::KeyedMutex locks;
  workspace::Metrics metrics;
  workspace::Context context{
      store, repos, base_trees, registry, *storage, locks, workspace_options(settings), metrics};

  workspace::check_rules(context.options.placement_rules, registry.names());
  workspace::LiveSandboxes active;
  auto watching = std::make_unique<workspace::ExecWatcher>(context, active);
  workspace::Repositories repositories(context);
  workspace::IntegrityCheck integrity(context);
  workspace::PutAway put_away(context, repositories, integrity);
  workspace::BringBack bring_back(context, repositories, integrity);
  workspace::Replica replica(context, active,
                             {.directory = settings.replica.directory,
                              .interval = seconds(settings.replica.interval_s),
                              .same_disk = settings.replica.same_disk,
                              .store_image = settings.store.image});
  workspace::Workspaces workspaces(context, repositories, active, *watching, integrity, bring_back,
                                   replica);
  workspace::Execs execs(context, workspaces, active, *watching);
  workspace::Archives archives(context, workspaces, active, put_away, bring_back);
  workspace::Flattening flattening(context, repositories, active);
  auto& hooks = workspaces.hooks();
  hooks.flatten = [&](const state_db::WorkspaceRow& row) { flattening.require_shallow(row); };
  workspace::Gc gc(context, active, workspaces.leases(), repositories, integrity, archives,
                   gc_rules(settings, context));
  workspace::ExportSpools spools(context);
  workspace::Budgets budgets(context, gc, spools, budget_limits(settings));
  workspace::Snapshots snapshots(context, workspaces, active, flattening, integrity, budgets);
  hooks.before_exec = [&](const state_db::WorkspaceRow& row) { return snapshots.before_exec(row); };
  hooks.after_stop = [&](const state_db::WorkspaceRow& row) { snapshots.after_stop(row); };
  workspace::Moves moves(context, workspaces, execs, active);
  workspace::Comparison comparison(context, workspaces);
  workspace::OutputRetention retention(
      context, {settings.workspace.output_limit_bytes, settings.workspace.output_keep_s * 1000});
  workspace::BestOfDriver best_of_driver(context, workspaces, execs, snapshots, comparison);
  const auto best_of_listens = watching->listen(best_of_driver);
  const auto retention_listens = watching->listen(retention);
  workspace::BestOf best_of(context, workspaces, snapshots, best_of_driver);
  workspace::SnapshotKeeper snapshot_keeper(context, active, snapshots);
  workspace::Reconciler reconciler(context, repositories, workspaces, active, *watching);
  workspace::Doctor doctor(context, repositories, workspaces, *watching, reconciler);
  workspace::StoreUsage usage(context);
  workspace::Top top(context, active, *watching);
  workspace::Exports exports(context, repositories, workspaces, snapshots, active, integrity,
                             spools);
  workspace::Imports imports(context, repositories, workspaces, integrity, budgets);
  hooks.admit = [&](uint32_t uid, base::RepoId repository) { budgets.admit(uid, repository); };
  const auto stop = [&](base::WorkspaceId id, const std::string& reason) {
    workspaces.stop_because(id, reason);
  };
  workspace::QuotaWatch quotas(context, active, *watching, stop);
  workspaces.hooks().require_within = [&](const auto& row) { quotas.require_within(row); };
  workspace::DiskGuard guard(context, active, *watching,
                             {.stop = stop, .low = [&] { gc.request(); }});
  doctor.watch(replica);
  // Created before the verbs, destroyed before them: its threads call them.
  const auto watcher = std::move(watching);
  const workspace::BestOfDriver::Work best_of_work(best_of_driver);
  const workspace::QuotaWatch::Work quota_work(quotas);
  workspace::IdleKeeper idle_keeper(context, workspaces, active, *watcher);
  workspace::RepositoryVerbs repository_verbs(context, repositories);
  daemon::Api api{context,
                  repository_verbs,
                  workspaces,
                  execs,
                  archives,
                  exports,
                  imports,
                  snapshots,
                  moves,
                  best_of,
                  comparison,
                  events,
                  usage,
                  top,
                  doctor,
                  gc,
                  quotas,
                  settings.api.max_body_bytes,
                  shown_settings(loaded),
                  daemon::look_at_host(store, registry, probe_options(settings)),
                  &replica};
  reconciler.at_start();
  best_of_driver.at_start();

  daemon::Router router;
  daemon::MetricsPage metrics_page(router, context, usage);
  metrics_page.tell_replica(replica);
  daemon::add_all_routes(router, api);
  daemon::add_metrics_route(router, metrics_page);
  daemon::WorkerPools worker_pools(settings.daemon.threads);
  daemon::KeyedAnswers answers(store);
  daemon::Dispatcher dispatcher(worker_pools, answers, &workspaces.waiters());
  daemon::Server server({router, dispatcher, worker_pools, limits(settings)});

  server.every(seconds(1), [&] {
    exit_if_failed(store);
    answers.write_later();
    store.checkpoint();
  });
  server.every(seconds(1), [&] { guard.look(); });
  server.every(seconds(1), [&] { workspaces.leases().sweep(); });
  server.every(seconds(1), [&] { idle_keeper.look(); });
  server.every(seconds(1), [&] { quotas.measure_rested(); });
  server.every(seconds(1), [&] { workspaces.measure_late(); });
  server.every(seconds(1), [&] { best_of_driver.look(); });
  server.every(seconds(1), [&] { workspaces.waiters().look(); });
  server.every(seconds(2), [&] { snapshot_keeper.look(); });
  server.every(kRetentionPause, [&] { retention.sweep(); });
  metrics_page.look();
  server.every(kMeasurePause, [&] { usage.request(); });
  server.every(kLookPause, [&] { metrics_page.look(); });
  server.every(seconds(settings.workspace.sync_interval_s), [&] { workspaces.sync_active(); });
  server.every(seconds(settings.daemon.reconcile_interval_s), [&] {
    reconciler.periodic();
    tidy(store);
  });
  server.listen(daemon::listen_for_clients(settings.api.socket, settings.api.group));
  base::log(base::LogLevel::info, "daemon.ready",
            {{"pid", getpid()},
             {"version", MOORAGE_VERSION},
             {"socket", settings.api.socket},
             {"store", settings.store.directory},
             {"store_id", store.store_id()}});
  daemon::tell_service_manager("READY=1");
  reconciler.after_ready();
  replica.start();

  const bool drained = server.run(true);
  workspaces.waiters().leave();  // destroy callers before what they call
  answers.write_later();
  daemon::tell_service_manager("STOPPING=1");
  unlink(settings.api.socket.c_str());
  base::log(base::LogLevel::info, "daemon.stopped", {{"drained", drained ? "yes" : "no"}});
  // A verb that outlasts the drain time is cut off as a crash would: its intent is recorded. The
  // same goes for a long repair, and for a replica round whose disk does not answer.
  if (!drained || !reconciler.stop_repairs(kLeave) || !replica.stop(kLeave)) _exit(0);
  daemon::exit_after(kLeave);
  return 0;
}

// The store's directory, or its nearest existing parent.
std::string existing_part(std::string path) {
  while (!base::path_exists(path)) path = path.substr(0, std::max<size_t>(1, path.rfind('/')));
  return path;
}

int check_host(const config::Settings& settings) {
  backends::ProbeOptions options = probe_options(settings);
  const bool there =
      settings.store.image.empty() || layers::StoreImage::is_mounted(store_image(settings));
  options.store = there ? existing_part(options.store) : "";
  bool all = true;
  for (const backends::Check& check : backends::probe_host(options)) {
    all = all && check.ok;
    const std::string hint = check.hint.empty() ? "" : "; " + check.hint;
    std::printf("%-7s %-18s %s%s\n", check.ok ? "ok" : "missing", check.name.c_str(),
                base::escape_for_message(check.text).c_str(),
                base::escape_for_message(hint).c_str());
  }
  return all ? 0 : 1;
}

int restore(const config::Settings& settings, const std::string& replica) {
  const std::string& store = settings.store.directory;
  const auto image = layers::StoreImage::open(store_image(settings));
  workspace::require_empty_store(store);
  repo_cache::RepoCache repos(repo_options(settings));
  const auto storage = layers::make_overlay_storage(
      {store, settings.ids.disk_first_id, settings.store.disk_quota == "watched"});
  const auto tell = [](const std::string& line) {
    std::printf("%s\n", base::escape_for_message(line).c_str());
    std::fflush(stdout);
  };
  const auto report = workspace::restore_store({.replica = replica,
                                                .store = store,
                                                .archive_directory = archive_directory(settings),
                                                .disk_first_id = settings.ids.disk_first_id,
                                                .repos = &repos,
                                                .storage = storage.get(),
                                                .tell = tell});
  tell("restored " + std::to_string(report.workspaces) + " workspaces, " +
       std::to_string(report.layers) + " layers, " + std::to_string(report.entries) +
       " files into " + store + ", as of " + base::format_utc(report.wall_ms));
  if (report.lost.empty()) tell("the store is complete; start mooraged on it");
  for (const auto& sentence : report.lost) tell("missing: " + sentence);
  return report.lost.empty() ? 0 : 1;
}

int run(const Arguments& arguments) {
  switch (arguments.action) {
    case Arguments::Action::show_version:
      return std::puts("mooraged " MOORAGE_VERSION) < 0;
    case Arguments::Action::show_help:
      return std::fputs(daemon::usage().c_str(), stdout) < 0;
    case Arguments::Action::list_crash_points:
      for (const auto& name : base::crash_point_names()) std::puts(std::string(name).c_str());
      return 0;
    case Arguments::Action::check_host:
    case Arguments::Action::restore_store:
    case Arguments::Action::show_config:
    case Arguments::Action::serve:
      break;
  }
  const config::LoadOptions options{.file = arguments.config_file,
                                    .environment = config::environment_of_process(),
                                    .overrides = arguments.overrides};
  const auto loaded = config::load(options);
  if (arguments.action == Arguments::Action::serve) return serve(loaded);
  if (arguments.action == Arguments::Action::restore_store)
    return restore(loaded.settings, arguments.replica);
  if (arguments.action == Arguments::Action::check_host) return check_host(loaded.settings);
  return std::fputs(config::show_text(loaded.shown).c_str(), stdout) < 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(daemon::parse_arguments(count, words));
  } catch (const base::Error& error) {
    std::fprintf(stderr, "mooraged: %s\n", base::escape_for_message(error.message()).c_str());
    if (!error.hint().empty())
      std::fprintf(stderr, "  %s\n", base::escape_for_message(error.hint()).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mooraged: %s\n", error.what());
  }
  return 1;
}
