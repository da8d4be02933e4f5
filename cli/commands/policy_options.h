// The options for the limits and rules of a workspace: `create` and `run` set them, `set` changes
// them. A new field needs a string here, its option, and lines in add_policy and policy_changes.
#pragma once

#include <string>
#include <vector>

#include "cli/client/json.h"
#include "cli/options.h"

namespace moorage::cli {

struct PolicyOptions {
  std::string memory;
  std::string cpus;
  std::string pids;
  std::string idle_stop;
  std::string max_lifetime;
  std::string pre_stop;
  std::string pre_stop_deadline;
  std::string max_exec;
  std::string max_execs;
  std::string max_exec_total;
  std::string disk;
  std::string disk_files;
  std::vector<std::string> caches;
  std::string snapshot;
};

void declare_policy(Options& options, PolicyOptions& policy);
// Adds the given options. Throws Error(invalid_argument) that names the option.
void add_policy(JsonObject& request, const PolicyOptions& policy);
struct FieldChange {
  std::string name;  // like its option
  std::string from;
  std::string to;
};
// For each given option: the daemon's value before and after.
std::vector<FieldChange> policy_changes(const PolicyOptions& given, const Json& before,
                                        const Json& after);

}  // namespace moorage::cli
