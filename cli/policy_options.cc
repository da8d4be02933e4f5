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
  // Of these two 0 is a word of its own: no limit.
  if (policy.disk == "0") limits.add("disk_bytes", int64_t{0});
  if (policy.disk_files == "0") limits.add("disk_files", int64_t{0});
  if (!policy.disk.empty() && policy.disk != "0") {
    limits.add("disk_bytes", static_cast<int64_t>(parse_size(policy.disk, "--disk")));
  }
  if (!policy.disk_files.empty() && policy.disk_files != "0") {
    limits.add("disk_files", static_cast<int64_t>(parse_number(policy.disk_files, "--disk-files")));
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
  options.value({"--pre-stop", "SCRIPT", "Run it before the sandbox is stopped; none"},
                policy.pre_stop);
  options.value({"--pre-stop-deadline", "TIME", "How long that may take, like 2m"},
                policy.pre_stop_deadline);
  options.value({"--max-exec", "TIME", "Longest command, like 1h; none"}, policy.max_exec);
  options.value({"--max-execs", "N", "How many commands may ever run; none"}, policy.max_execs);
  options.value({"--max-exec-total", "TIME", "Time of all commands together; none"},
                policy.max_exec_total);
  options.value({"--disk", "SIZE", "Limit of what it takes on disk, like 20G; 0 is none"},
                policy.disk);
  options.value({"--disk-files", "N", "Limit of its files; 0 is none"}, policy.disk_files);
  options.values({"--cache", "PATH", "What gc may remove at rest, like /home/user/.cache"},
                 policy.caches);
}

void add_policy(JsonObject& request, const PolicyOptions& policy) {
  const JsonObject limits = limits_of(policy);
  if (!limits.empty()) request.add("limits", limits);
  add_seconds(request, "idle_stop_s", policy.idle_stop, "--idle-stop");
  add_seconds(request, "max_lifetime_s", policy.max_lifetime, "--max-lifetime");
  if (policy.pre_stop == "none") {
    request.add("pre_stop", std::vector<std::string>());
  } else if (!policy.pre_stop.empty()) {
    request.add("pre_stop", policy.pre_stop);
  }
  add_seconds(request, "pre_stop_deadline_s", policy.pre_stop_deadline, "--pre-stop-deadline");
  add_seconds(request, "max_exec_s", policy.max_exec, "--max-exec");
  if (policy.max_execs == "none") {
    request.add("max_execs", int64_t{0});
  } else if (!policy.max_execs.empty()) {
    request.add("max_execs", static_cast<int64_t>(parse_number(policy.max_execs, "--max-execs")));
  }
  add_seconds(request, "max_exec_total_s", policy.max_exec_total, "--max-exec-total");
  if (!policy.caches.empty()) request.add_bytes("caches", policy.caches);
}

}  // namespace moorage::cli
