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

// Whole seconds, at least one; a word for none, and one for what the daemon's settings say.
void add_seconds(JsonObject& request, const char* field, const std::string& text,
                 const std::string& option) {
  if (text.empty()) return;
  int64_t seconds = 0;
  if (text == "default") {
    seconds = -1;
  } else if (text != "never" && text != "none") {
    seconds = (parse_duration_ms(text, option) + 999) / 1000;
  }
  request.add(field, seconds);
}

}  // namespace

void declare_policy(Options& options, PolicyOptions& policy) {
  options.value({"--memory", "SIZE", "Memory limit, like 4G"}, policy.memory);
  options.value({"--cpus", "N", "Processor limit, like 2 or 0.5"}, policy.cpus);
  options.value({"--pids", "N", "Limit of processes"}, policy.pids);
  options.value({"--idle-stop", "TIME", "Stop it after this without work, like 30m; never"},
                policy.idle_stop);
  options.value({"--max-lifetime", "TIME", "Stop it after this, busy or not, like 8h; none"},
                policy.max_lifetime);
}

void add_policy(JsonObject& request, const PolicyOptions& policy) {
  const JsonObject limits = limits_of(policy);
  if (!limits.empty()) request.add("limits", limits);
  add_seconds(request, "idle_stop_s", policy.idle_stop, "--idle-stop");
  add_seconds(request, "max_lifetime_s", policy.max_lifetime, "--max-lifetime");
}

}  // namespace moorage::cli
