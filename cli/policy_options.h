// The options that say what a workspace may do: `create` and `run` take them for a new one, `set`
// changes them. A field more is a text here, its option, and its line in add_policy.
#pragma once

#include <string>

#include "cli/json.h"
#include "cli/options.h"

namespace moorage::cli {

struct PolicyOptions {
  std::string memory;
  std::string cpus;
  std::string pids;
  std::string idle_stop;
  std::string max_lifetime;
};

void declare_policy(Options& options, PolicyOptions& policy);
// Adds what was given. Throws Error(invalid_argument) that names the option.
void add_policy(JsonObject& request, const PolicyOptions& policy);

}  // namespace moorage::cli
