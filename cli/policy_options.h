// The options that say what a workspace may do: `create` and `run` take them for a new one, `set`
// changes them. A field more is a text here, its option, and its lines in add_policy and in
// policy_changes.
#pragma once

#include <string>
#include <vector>

#include "cli/json.h"
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
// Adds what was given. Throws Error(invalid_argument) that names the option.
void add_policy(JsonObject& request, const PolicyOptions& policy);
struct FieldChange {
  std::string name;  // as its option
  std::string from;
  std::string to;
};
// Of the options that were given: what the daemon says that holds before and after.
std::vector<FieldChange> policy_changes(const PolicyOptions& given, const Json& before,
                                        const Json& after);

}  // namespace moorage::cli
