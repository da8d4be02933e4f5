#include "daemon/arguments.h"

#include <string_view>

#include "base/error.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Code::invalid_argument, what, "mooraged --help lists what it takes");
}

}  // namespace

std::string usage() {
  return "mooraged: keeps workspaces, runs commands in sandboxes, serves the API on a unix "
         "socket.\n"
         "\n"
         "  --config FILE        settings; default /etc/moorage/moorage.yaml, if it is there\n"
         "  --set GROUP.KEY=V    one setting, over everything else; may be repeated\n"
         "  --foreground         stay in the foreground (it always does)\n"
         "  --check-host         say what this host can do and what not, and what follows; start\n"
         "                       nothing. Exit status 1: something is missing that is needed\n"
         "  --show-config        print the settings in effect and where each comes from\n"
         "  --restore-store DIR  make a store of the copy in DIR, into store.directory, which "
         "must\n"
         "                       be empty; start nothing. Exit status 1: something is missing\n"
         "  --list-crash-points  print the names that MOORAGE_CRASH_AT takes\n"
         "  --version  --help\n"
         "\n"
         "A setting GROUP.KEY can also come from the environment, as MOORAGE_GROUP_KEY: over the\n"
         "file, under --set. A list there is separated by colons.\n"
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
