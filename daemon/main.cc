// mooraged: its command line. serve.cc starts the daemon; the construction of its parts is in
// workspace/services.
#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "backends/registry.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/os/files.h"
#include "base/size_text.h"
#include "config/load.h"
#include "daemon/arguments.h"
#include "daemon/serve.h"
#include "repo_cache/repo_cache.h"
#include "workspace/access/placement.h"
#include "workspace/replica/restore_store.h"

namespace {

using namespace moorage;
using daemon::Arguments;

// The store's directory, or its nearest existing parent.
std::string existing_part(std::string path) {
  while (!base::path_exists(path)) path = path.substr(0, std::max<size_t>(1, path.rfind('/')));
  return path;
}

// --check-host: can this host run sandboxes? Prints a line for each check. Exit status 0: all
// passed.
int check_host(const daemon::Settings& settings) {
  backends::ProbeOptions options = settings.probe;
  const bool there = settings.image.image.empty() || layers::StoreImage::is_mounted(settings.image);
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

// --restore-store: makes the store from its replica. Exit status 0: nothing is missing.
int restore(const daemon::Settings& settings, const std::string& replica) {
  const std::string& store = settings.store();
  const auto image = layers::StoreImage::open(settings.image);
  workspace::require_empty_store(store);
  repo_cache::RepoCache repos(settings.services.repos);
  const auto storage = layers::make_overlay_storage(settings.services.storage);
  const auto tell = [](const std::string& line) {
    std::printf("%s\n", base::escape_for_message(line).c_str());
    std::fflush(stdout);
  };
  const auto report =
      workspace::restore_store({.replica = replica,
                                .store = store,
                                .archive_directory = settings.services.workspace.archive_directory,
                                .disk_first_id = settings.services.workspace.disk_first_id,
                                .repos = &repos,
                                .storage = storage.get(),
                                .tell = tell});
  tell("restored " + base::count_text(report.workspaces, "workspace") + ", " +
       base::count_text(report.layers, "layer") + ", " + base::count_text(report.entries, "file") +
       " into " + store + ", as of " + base::format_utc(report.wall_ms));
  if (report.lost.empty()) tell("the store is complete; start mooraged on it");
  for (const auto& sentence : report.lost) tell("missing: " + sentence);
  return report.lost.empty() ? 0 : 1;
}

// --check-config: a wrong file was refused before, with its line.
int report_valid(const Arguments& arguments, const config::Loaded& loaded,
                 const daemon::Settings& settings) {
  workspace::check_rules(*settings.services.workspace.placement_rules->get(),
                         backends::backend_names());
  const auto set = std::count_if(
      loaded.shown.begin(), loaded.shown.end(),
      [](const config::ShownSetting& setting) { return setting.source != "default"; });
  const size_t rules = loaded.settings.policy.size();
  std::printf("%s is valid: %s, %s of policy\n",
              arguments.config_file.value_or(std::string(config::kDefaultFile)).c_str(),
              base::count_text(static_cast<uint64_t>(set) - rules, "setting").c_str(),
              base::count_text(rules, "rule").c_str());
  return 0;
}

int run(const Arguments& arguments) {
  using Action = Arguments::Action;
  if (arguments.action == Action::show_version) return std::puts("mooraged " MOORAGE_VERSION) < 0;
  if (arguments.action == Action::show_help) return std::fputs(daemon::usage().c_str(), stdout) < 0;
  if (arguments.action == Action::list_crash_points) {
    for (const auto& name : base::crash_point_names()) std::puts(std::string(name).c_str());
    return 0;
  }
  const config::LoadOptions options{.file = arguments.config_file,
                                    .environment = config::environment_of_process(),
                                    .overrides = arguments.overrides};
  const auto loaded = config::load(options);
  if (arguments.action == Action::show_config)
    return std::fputs(config::show_text(loaded.shown).c_str(), stdout) < 0;
  daemon::Settings settings = daemon::settings_of(loaded);
  if (arguments.action == Action::check_config) return report_valid(arguments, loaded, settings);
  settings.read_again = [options] { return daemon::settings_of(config::load(options)); };
  if (arguments.action == Action::restore_store) return restore(settings, arguments.replica);
  if (arguments.action == Action::check_host) return check_host(settings);
  return daemon::serve(settings);
}

}  // namespace

// Run by `moorage config check`, it is called moorage.
int main(int count, char** words) {
  try {
    return run(daemon::parse_arguments(count, words));
  } catch (const base::Error& error) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name,
                 base::escape_for_message(error.message()).c_str());
    if (!error.hint().empty())
      std::fprintf(stderr, "  %s\n", base::escape_for_message(error.hint()).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.what());
  }
  return 1;
}
