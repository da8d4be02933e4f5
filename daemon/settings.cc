#include "daemon/settings.h"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <variant>

#include "base/error.h"
#include "base/os/files.h"
#include "config/load.h"
#include "daemon/json/json_fields.h"
#include "workspace/access/placement.h"

namespace moorage::daemon {
namespace {

using std::chrono::seconds;

constexpr uint32_t kEgressId = 65'537;  // after the owners on disk
constexpr size_t kMaxCredential = 4096;

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
  options.max_git_memory_bytes = settings.repo.max_git_memory_bytes;
  options.max_objects = settings.repo.max_objects;
  options.disk_first_id = settings.ids.disk_first_id;
  options.checkout_threads = settings.repo.checkout_threads;
  const auto& repo = settings.repo;
  if (!repo.https_proxy.empty()) options.environment["https_proxy"] = repo.https_proxy;
  std::string& no_proxy = options.environment["no_proxy"];
  for (const std::string& host : repo.no_proxy) no_proxy += host + ",";
  if (!repo.ca_file.empty()) options.environment["GIT_SSL_CAINFO"] = repo.ca_file;
  return options;
}

backends::ProviderOptions provider_options(const config::ProviderSettings& from) {
  boost::json::object settings;
  for (const auto& [name, value] : from.driver)
    std::visit([&, key = name](const auto& v) { settings[key] = v; }, value);
  // Sandboxes reach hosts through the link, by their own rules; the provider cuts off the rest.
  settings["internet"] = false;
  return {.settings = boost::json::serialize(settings),
          .key_file = from.key_file,
          .credential = from.credential,
          .max_sandboxes = from.max_sandboxes,
          .has_volume = from.driver.contains("volume")};
}

backends::RemoteOptions remote_options(const config::Settings& settings) {
  backends::RemoteOptions options;
  options.link_program = settings.libexec_directory + "/moorage-link";
  options.outpost_program = settings.libexec_directory + "/moorage-outpost";
  options.notes_directory = settings.store.directory + "/remote";
  if (const auto& ssh = settings.backends.ssh) {
    options.ssh_config_file = ssh->config_file;
    for (const auto& host : ssh->hosts)
      options.ssh_hosts.push_back(
          {host.name, host.destination, host.directory, host.max_sandboxes});
  }
  if (const auto& e2b = settings.backends.e2b) {
    options.e2b = provider_options(*e2b);
    // Other servers that speak its API have what machines they like.
    options.e2b->machines_are_vms = !e2b->driver.contains("api_url");
  }
  if (const auto& daytona = settings.backends.daytona) options.daytona = provider_options(*daytona);
  options.sync_interval_s = static_cast<uint32_t>(settings.remote.sync_interval_s);
  options.start_deadline_s = static_cast<uint32_t>(settings.remote.start_deadline_s);
  return options;
}

backends::BackendOptions backend_options(const config::Settings& settings) {
  backends::BackendOptions options;
  options.images_directory = settings.store.directory + "/images";
  options.launch_program = settings.libexec_directory + "/moorage-launch";
  options.warden_program = settings.libexec_directory + "/moorage-warden";
  options.egress_program = settings.libexec_directory + "/moorage-egress";
  options.egress_uid = settings.ids.disk_first_id + kEgressId;
  options.allow_process = settings.sandbox.allow_process_backend;
  options.cpu_weight = settings.sandbox.cpu_weight;
  options.disk_rate_bytes = settings.sandbox.disk_rate_bytes;
  options.nested_namespaces = settings.sandbox.nested_namespaces;
  options.docker_socket = settings.docker.socket;
  options.docker_runtime = settings.docker.runtime;
  options.remote = remote_options(settings);
  return options;
}

// "user:password" on one line; refused if others may read it.
std::string proxy_authorization(const std::string& file) {
  if (file.empty()) return {};
  struct stat info;
  base::check(stat(file.c_str(), &info), "find " + file);
  if ((info.st_mode & 077) != 0 || info.st_uid != 0) {
    throw Error(Code::invalid_argument, "others than root may read " + file,
                "chown root " + file + "; chmod 600 " + file);
  }
  std::string text = base::read_file(file, kMaxCredential);
  text.erase(text.find_last_not_of("\r\n") + 1);
  return "Basic " + base64_encode(text);
}

workspace::NetworkOptions network_options(const config::Settings& settings) {
  const auto& from = settings.network;
  workspace::NetworkOptions options;
  for (const auto& [name, preset] : settings.network_presets)
    options.presets[name] = {preset.summary, preset.open, preset.open_ports, preset.rules};
  options.resolvers = from.resolvers;
  options.reachable = from.reachable;
  if (!from.proxy.empty()) {
    constexpr size_t kScheme = std::string_view("http://").size();
    const size_t colon = from.proxy.rfind(':');
    options.proxy_host = from.proxy.substr(kScheme, colon - kScheme);
    options.proxy_port = static_cast<uint16_t>(std::stoul(from.proxy.substr(colon + 1)));
    options.proxy_authorization = proxy_authorization(from.proxy_authorization_file);
    options.no_proxy = from.no_proxy;
  }
  options.limits = {from.max_connections, from.rate_bytes, from.total_bytes};
  options.egress_program = settings.libexec_directory + "/moorage-egress";
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

workspace::PlacementRules::Set placement_rules(const std::vector<config::PolicyRule>& rules) {
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
         .default_network = rule.default_network,
         .networks = rule.networks,
         .hosts = rule.hosts,
         .refuse_hosts = rule.refuse_hosts,
         .usual = placement_limits(rule.usual),
         .most = placement_limits(rule.most)});
  }
  return std::make_shared<const std::vector<workspace::PlacementRule>>(std::move(converted));
}

workspace::Options workspace_options(const config::Settings& settings) {
  workspace::Options options;
  options.store = settings.store.directory;
  options.disk_first_id = settings.ids.disk_first_id;
  options.sandbox_first_id = settings.ids.sandbox_first_id;
  options.sandbox_slots = settings.ids.sandbox_slots;
  options.default_backend = settings.sandbox.backend;
  options.default_network = settings.network.mode;
  options.ca_file = settings.network.ca_file;
  options.credential_key = settings.network.credential_key;
  options.networks.clear();
  for (const auto& [name, preset] : settings.network_presets) options.networks.push_back(name);
  options.placement_rules->replace(placement_rules(settings.policy));
  options.memory_bytes = settings.sandbox.memory_bytes;
  options.cpus = settings.sandbox.cpus;
  options.pids = settings.sandbox.pids;
  options.sudo = settings.sandbox.sudo;
  options.git_author = {settings.sandbox.git_name, settings.sandbox.git_email};
  options.start_deadline = seconds(settings.sandbox.start_deadline_s);
  options.stop_grace = seconds(settings.sandbox.stop_grace_s);
  options.idle_stop_s = settings.sandbox.idle_stop_s;
  options.remote_hours_a_day = settings.remote.user_hours_a_day;
  options.max_lifetime_s = settings.sandbox.max_lifetime_s;
  options.fetch_deadline = seconds(settings.repo.fetch_deadline_s);
  options.access_memory = seconds(settings.repo.access_s);
  options.ssh_config = settings.repo.ssh_config;
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
  options.upload_max_bytes = settings.api.max_body_bytes;
  options.delete_losers = settings.workspace.delete_losers;
  options.undelete_window_ms = settings.workspace.undelete_window_s * 1000;
  return options;
}

workspace::ServiceOptions service_options(const config::Settings& settings) {
  return {.backends = backend_options(settings),
          .repos = repo_options(settings),
          .storage = {.store = settings.store.directory,
                      .disk_first_id = settings.ids.disk_first_id,
                      .watch_only = settings.store.disk_quota == "watched"},
          .workspace = workspace_options(settings),
          .network = network_options(settings),
          .output = {.workspace_bytes = settings.workspace.output_limit_bytes,
                     .keep_ms = settings.workspace.output_keep_s * 1000},
          .gc = {.archive_after_ms = settings.gc.archive_after_s * 1000,
                 .lately = seconds(settings.gc.keep_unused_s)},
          .budgets = {.store_bytes = settings.store.budget_bytes,
                      .store_files = settings.store.budget_files,
                      .repo_bytes = settings.repo.budget_bytes,
                      .user_bytes = settings.user.budget_bytes},
          .replica = {.directory = settings.replica.directory,
                      .interval = seconds(settings.replica.interval_s),
                      .same_disk = settings.replica.same_disk,
                      .store_image = settings.store.image}};
}

std::vector<SettingView> shown_settings(const config::Loaded& loaded) {
  std::vector<SettingView> views;
  for (const auto& item : loaded.shown) {
    views.push_back({item.name, item.value, item.unit, item.source, item.help});
  }
  return views;
}

Limits limits(const config::Settings& settings) {
  Limits limits;
  limits.max_connections = settings.api.max_connections;
  // Keeps room for root, however many connections one user opens.
  limits.max_connections_per_uid = std::max(1U, settings.api.max_connections / 4 * 3);
  limits.json_bytes = settings.api.max_json_bytes;
  return limits;
}

}  // namespace

Settings settings_of(const config::Loaded& loaded) {
  const auto& settings = loaded.settings;
  return {.log = log_options(settings.log),
          .unknown_variables = loaded.unknown_variables,
          .shown = shown_settings(loaded),
          .image = {.directory = settings.store.directory,
                    .image = settings.store.image,
                    .bytes = settings.store.image_bytes},
          .reserve_bytes = settings.store.reserve_bytes,
          .services = service_options(settings),
          .probe = {.store = settings.store.directory,
                    .store_image = settings.store.image,
                    .docker_socket = settings.docker.socket,
                    .disk_first_id = settings.ids.disk_first_id,
                    .sandbox_first_id = settings.ids.sandbox_first_id,
                    .sandbox_id_slots = settings.ids.sandbox_slots},
          .socket = settings.api.socket,
          .group = settings.api.group,
          .threads = settings.daemon.threads,
          .limits = limits(settings),
          .sync_interval = seconds(settings.workspace.sync_interval_s),
          .reconcile_interval = seconds(settings.daemon.reconcile_interval_s)};
}

}  // namespace moorage::daemon
