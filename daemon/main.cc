// mooraged. serve.cc starts the daemon; the construction of its parts is in workspace/services.
#include <cstdio>

#include "base/crash_point.h"
#include "base/error.h"
#include "config/load.h"
#include "daemon/arguments.h"
#include "daemon/host_check.h"
#include "daemon/restore.h"
#include "daemon/serve.h"

namespace {

using namespace moorage;
using daemon::Arguments;

int run(const Arguments& arguments) {
  using Action = Arguments::Action;
  if (arguments.action == Action::show_version) return std::puts("mooraged " MOORAGE_VERSION) < 0;
  if (arguments.action == Action::show_help) return std::fputs(daemon::usage().c_str(), stdout) < 0;
  if (arguments.action == Action::list_crash_points) {
    for (const auto& name : base::crash_point_names()) std::puts(std::string(name).c_str());
    return 0;
  }
  const auto loaded = config::load({.file = arguments.config_file,
                                    .environment = config::environment_of_process(),
                                    .overrides = arguments.overrides});
  if (arguments.action == Action::show_config)
    return std::fputs(config::show_text(loaded.shown).c_str(), stdout) < 0;
  const daemon::Settings settings = daemon::settings_of(loaded);
  if (arguments.action == Action::restore_store)
    return daemon::restore(settings, arguments.replica);
  if (arguments.action == Action::check_host) return daemon::check_host(settings);
  return daemon::serve(settings);
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
