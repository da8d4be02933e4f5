// Loads settings from, in rising order: the defaults, one YAML file, the environment, --set.
// Strict: an unknown or repeated key, a wrong type or a value out of range throws
// Error(invalid_argument) with file, line and column (or the variable), and suggests the nearest
// known key. The variable of a.b_c is MOORAGE_A_B_C, with lists separated by ':'. Only the file can
// have the sections `policy` (policy_rules.h) and `backends` (remote_backends.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace moorage::config {

inline constexpr std::string_view kDefaultFile = "/etc/moorage/moorage.yaml";

struct LoadOptions {
  std::optional<std::string> file{};  // --config: must exist. Unset: kDefaultFile if it exists
  std::map<std::string, std::string> environment{};
  std::map<std::string, std::string> overrides{};  // --set: "a.b_c" -> value
};

// One line of `moorage config show`. `value` has the syntax of the file.
struct ShownSetting {
  std::string name{};
  std::string value{};
  std::string unit{};    // "bytes", "s", or empty
  std::string source{};  // "default", "FILE:LINE", "environment NAME", "--set"
  std::string help{};
};

struct Loaded {
  Settings settings{};
  // All settings, in the order of the table; then one line per rule (policy[1]...)
  // and per remote backend (backends.ssh).
  std::vector<ShownSetting> shown{};
  std::vector<std::string>
      unknown_variables{};  // MOORAGE_... variables without a setting: worth a warning
};

Loaded load(const LoadOptions& options);

std::map<std::string, std::string> environment_of_process();  // those that begin with MOORAGE_

std::string show_text(const std::vector<ShownSetting>& shown);

}  // namespace moorage::config
