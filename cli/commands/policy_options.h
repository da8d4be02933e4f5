// The options for the limits and rules of a workspace: `create` and `run` set them, `set`, which is
// defined here, changes them. A new option of one value is a row of the table in policy_options.cc.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/client/json.h"
#include "cli/options.h"

namespace moorage::cli {

struct PolicyOptions {
  std::map<std::string, std::string> values;  // by option, like "--memory"; empty: not given
  std::vector<std::string> caches;
  std::vector<std::string> push_refs;
  std::string snapshot;

  void declare(Options& options);  // before any use: fills `values`
};

// Adds the given options. Throws Error(invalid_argument) that names the option.
void add_policy(JsonObject& request, const PolicyOptions& policy);

}  // namespace moorage::cli
