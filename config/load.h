// Settings from, in rising order: the defaults, one YAML file, the environment, --set. Nothing is
// guessed: an unknown or repeated key, a wrong type, a value out of range throw
// Error(invalid_argument) with file, line and column (or the variable), and name the nearest known
// key. The variable of a.b_c is MOORAGE_A_B_C; a list there is separated by ':'. The rules of the
// section `policy` (policy_rules.h) are the file's alone.
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
  std::optional<std::string> file{};  // --config: must exist. Unset: kDefaultFile if it is there
  std::map<std::string, std::string> environment{};
  std::map<std::string, std::string> overrides{};  // --set: "a.b_c" -> value
};

// One line of `moorage config show`. value is as the file would have it.
struct ShownSetting {
  std::string name{};
  std::string value{};
  std::string unit{};    // "bytes", "s", or empty
  std::string source{};  // "default", "FILE:LINE", "environment NAME", "--set"
  std::string help{};
};

struct Loaded {
  Settings settings{};
  // All settings, in the order of the table; then a line a rule: policy[1], policy[2]...
  std::vector<ShownSetting> shown{};
  std::vector<std::string>
      unknown_variables{};  // MOORAGE_... that mean no setting: worth a warning
};

Loaded load(const LoadOptions& options);

std::map<std::string, std::string> environment_of_process();  // those that begin with MOORAGE_

std::string show_text(const std::vector<ShownSetting>& shown);

// The known setting or section that is most like this name, if any is.
std::optional<std::string> nearest_name(std::string_view name);

}  // namespace moorage::config
