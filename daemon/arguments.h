// The command line of mooraged. Settings live in the file; --set is for tests and one-off runs.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace moorage::daemon {

struct Arguments {
  enum class Action {
    serve,
    check_host,
    check_config,
    show_config,
    show_version,
    list_crash_points,
    restore_store,
    show_help
  };
  Action action = Action::serve;
  std::optional<std::string> config_file;
  std::string replica;                           // the copy that --restore-store reads
  std::map<std::string, std::string> overrides;  // "group.key" -> value
};

// Throws invalid_argument with a hint.
Arguments parse_arguments(int count, char** words);
std::string usage();

}  // namespace moorage::daemon
