#include "cli/policy_options.h"

#include "cli/text.h"

namespace moorage::cli {
namespace {

JsonObject limits_of(const PolicyOptions& policy) {
  JsonObject limits;
  if (!policy.memory.empty()) {
    limits.add("memory_bytes", static_cast<int64_t>(parse_size(policy.memory, "--memory")));
  }
  if (!policy.cpus.empty()) limits.add("cpus", parse_number(policy.cpus, "--cpus"));
  if (!policy.pids.empty()) {
    limits.add("pids", static_cast<int64_t>(parse_number(policy.pids, "--pids")));
  }
  return limits;
}

}  // namespace

void declare_policy(Options& options, PolicyOptions& policy) {
  options.value({"--memory", "SIZE", "Memory limit, like 4G"}, policy.memory);
  options.value({"--cpus", "N", "Processor limit, like 2 or 0.5"}, policy.cpus);
  options.value({"--pids", "N", "Limit of processes"}, policy.pids);
}

void add_policy(JsonObject& request, const PolicyOptions& policy) {
  const JsonObject limits = limits_of(policy);
  if (!limits.empty()) request.add("limits", limits);
}

}  // namespace moorage::cli
