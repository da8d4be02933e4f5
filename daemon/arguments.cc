#include "daemon/arguments.h"

#include <string_view>

#include "base/error.h"

namespace moorage::daemon {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Code::invalid_argument, what, "see mooraged --help");
}

}  // namespace

std::string usage() {
  return "mooraged: keeps workspaces, runs commands in sandboxes, serves the API on a Unix "
         "socket.\n"
         "\n"
         "  --config FILE        settings file; default /etc/moorage/moorage.yaml if it exists\n"
         "  --set GROUP.KEY=V    override one setting; may be repeated\n"
         "  --foreground         no effect: mooraged always stays in the foreground\n"
         "  --check-host         check what this host supports, then exit; start nothing\n"
         "                       Exit status 1: something required is missing\n"
         "  --check-config       check the settings file, then exit; start nothing\n"
         "  --show-config        print the effective settings and where each comes from\n"
         "  --restore-store DIR  rebuild the store from its copy in DIR, then exit\n"
         "                       The store goes to store.directory, which must be empty.\n"
         "                       Exit status 1: some data is missing\n"
         "  --list-crash-points  print the names that MOORAGE_CRASH_AT accepts\n"
         "  --version  --help\n"
         "\n"
         "The environment variable MOORAGE_GROUP_KEY also sets GROUP.KEY. It overrides the file,\n"
         "and --set overrides both. Separate the items of a list with colons.\n"
         "\n"
         "Example: mooraged --set store.directory=/srv/moorage --set api.socket=/tmp/api.sock\n";
}

Arguments parse_arguments(int count, char** words) {
  using Action = Arguments::Action;
  Arguments arguments;
  const auto value_of = [&](int& at) -> std::string {
    if (at + 1 >= count) refuse(std::string(words[at]) + " needs a value");
    return words[++at];
  };
  for (int at = 1; at < count; ++at) {
    const std::string_view word = words[at];
    if (word == "--config") {
      arguments.config_file = value_of(at);
    } else if (word == "--set") {
      const std::string pair = value_of(at);
      const size_t equals = pair.find('=');
      if (equals == std::string::npos || equals == 0)
        refuse("--set takes GROUP.KEY=VALUE, not " + pair);
      arguments.overrides[pair.substr(0, equals)] = pair.substr(equals + 1);
    } else if (word == "--check-host") {
      arguments.action = Action::check_host;
    } else if (word == "--check-config") {
      arguments.action = Action::check_config;
    } else if (word == "--show-config") {
      arguments.action = Action::show_config;
    } else if (word == "--list-crash-points") {
      arguments.action = Action::list_crash_points;
    } else if (word == "--restore-store") {
      arguments.action = Action::restore_store;
      arguments.replica = value_of(at);
    } else if (word == "--version") {
      arguments.action = Action::show_version;
    } else if (word == "--help" || word == "-h") {
      arguments.action = Action::show_help;
    } else if (word != "--foreground") {
      refuse("unknown argument " + std::string(word));
    }
  }
  return arguments;
}

}  // namespace moorage::daemon
