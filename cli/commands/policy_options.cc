#include "cli/commands/policy_options.h"

#include <cstdio>
#include <sstream>

#include "base/error.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

// Leaves the field out when the option is missing. "none" is 0 on the wire, "default" (the daemon's
// settings) is -1; `parse` reads everything else.
template <typename Parse>
void add_limit(JsonObject& request, const char* field, const std::string& text,
               const std::string& option, const Parse& parse) {
  if (text.empty()) return;
  int64_t value = 0;
  if (text == "default") {
    value = -1;
  } else if (text != "none" && text != "never" && text != "0") {
    value = parse(text, option);
  }
  request.add(field, value);
}

int64_t size(const std::string& text, const std::string& option) {
  return static_cast<int64_t>(parse_size(text, option));
}
int64_t count(const std::string& text, const std::string& option) {
  const double number = parse_number(text, option);
  const auto whole = static_cast<int64_t>(number);
  if (static_cast<double>(whole) == number) return whole;
  throw Error(Code::invalid_argument, option + ": '" + text + "' is not an integer");
}
// Rounded up to whole seconds.
int64_t seconds(const std::string& text, const std::string& option) {
  return (parse_duration_ms(text, option) + 999) / 1000;
}

JsonObject limits_of(const PolicyOptions& policy) {
  JsonObject limits;
  add_limit(limits, "memory_bytes", policy.memory, "--memory", size);
  if (!policy.cpus.empty()) limits.add("cpus", parse_number(policy.cpus, "--cpus"));
  add_limit(limits, "pids", policy.pids, "--pids", count);
  add_limit(limits, "disk_bytes", policy.disk, "--disk", size);
  add_limit(limits, "disk_files", policy.disk_files, "--disk-files", count);
  return limits;
}

using Text = std::string (*)(const Json& workspace, const std::string& field);

std::string size_or_none(const Json& workspace, const std::string& field) {
  const auto bytes = static_cast<uint64_t>(workspace.number(field));
  return bytes == 0 ? "none" : format_size(bytes);
}
std::string number_or_none(const Json& workspace, const std::string& field) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", workspace.real(field));
  return workspace.real(field) == 0 ? "none" : text;
}
std::string time_or_none(const Json& workspace, const std::string& field) {
  const int64_t seconds = workspace.number(field);
  return seconds == 0 ? "none" : format_seconds(seconds);
}
std::string time_or_never(const Json& workspace, const std::string& field) {
  const int64_t seconds = workspace.number(field);
  return seconds == 0 ? "never" : format_seconds(seconds);
}
std::string snapshot_moments(const Json& workspace, const std::string&) {
  std::string text;
  const auto add = [&](const std::string& moment) { text += (text.empty() ? "" : ",") + moment; };
  if (workspace.flag("snapshot_before_exec")) add("before-exec");
  if (workspace.flag("snapshot_on_stop")) add("on-stop");
  if (const int64_t every = workspace.number("snapshot_every_s"); every > 0)
    add(format_seconds(every));
  return text.empty() ? "manual" : text;
}

int64_t moment_seconds(const std::string& moment) {
  try {
    return seconds(moment, "--snapshot");
  } catch (const Error&) {
    throw Error(
        Code::invalid_argument,
        "--snapshot takes before-exec, on-stop, a time like 10m, or manual; not '" + moment + "'");
  }
}

// "before-exec,on-stop,10m"; "manual" means none of them.
void add_snapshot_moments(JsonObject& request, const std::string& text) {
  if (text.empty()) return;
  bool before_exec = false;
  bool on_stop = false;
  int64_t every_s = 0;
  std::istringstream moments(text);
  for (std::string moment; std::getline(moments, moment, ',');) {
    if (moment == "before-exec") {
      before_exec = true;
    } else if (moment == "on-stop") {
      on_stop = true;
    } else if (moment != "manual") {
      every_s = moment_seconds(moment);
    }
  }
  request.add("snapshot_before_exec", before_exec);
  request.add("snapshot_on_stop", on_stop);
  request.add("snapshot_every_s", every_s);
}

std::string words_or_none(const Json& workspace, const std::string& field) {
  const auto words = workspace.at({}).byte_list(field);
  return words.empty() ? "none" : shorten(join_command(words), 60);
}

}  // namespace

std::vector<FieldChange> policy_changes(const PolicyOptions& given, const Json& before,
                                        const Json& after) {
  std::vector<FieldChange> changes;
  const auto add = [&](bool is_given, const char* name, const char* field, Text text) {
    if (is_given) changes.push_back({name, text(before, field), text(after, field)});
  };
  add(!given.memory.empty(), "memory", "limits.memory_bytes", size_or_none);
  add(!given.cpus.empty(), "cpus", "limits.cpus", number_or_none);
  add(!given.pids.empty(), "pids", "limits.pids", number_or_none);
  add(!given.disk.empty(), "disk", "limits.disk_bytes", size_or_none);
  add(!given.disk_files.empty(), "disk-files", "limits.disk_files", number_or_none);
  add(!given.idle_stop.empty(), "idle-stop", "idle_stop_s", time_or_never);
  add(!given.max_lifetime.empty(), "max-lifetime", "max_lifetime_s", time_or_none);
  add(!given.pre_stop.empty(), "pre-stop", "pre_stop", words_or_none);
  add(!given.pre_stop_deadline.empty(), "pre-stop-deadline", "pre_stop_deadline_s", time_or_none);
  add(!given.max_exec.empty(), "max-exec", "max_exec_s", time_or_none);
  add(!given.max_execs.empty(), "max-execs", "max_execs", number_or_none);
  add(!given.max_exec_total.empty(), "max-exec-total", "max_exec_total_s", time_or_none);
  add(!given.snapshot.empty(), "snapshot", "", snapshot_moments);
  add(!given.caches.empty(), "cache", "caches", words_or_none);
  return changes;
}

void declare_policy(Options& options, PolicyOptions& policy) {
  options.value({"--memory", "SIZE", "Memory limit, like 4G"}, policy.memory);
  options.value({"--cpus", "N", "CPU limit, like 2 or 0.5"}, policy.cpus);
  options.value({"--pids", "N", "Limit of processes, at least 4"}, policy.pids);
  options.value({"--idle-stop", "TIME", "Stop it when idle this long, like 30m; never"},
                policy.idle_stop);
  options.value({"--max-lifetime", "TIME", "Stop it after this time even if busy, like 8h; none"},
                policy.max_lifetime);
  options.value({"--pre-stop", "SCRIPT", "Script to run before the sandbox stops; none"},
                policy.pre_stop);
  options.value({"--pre-stop-deadline", "TIME", "Time limit of that script, like 2m"},
                policy.pre_stop_deadline);
  options.value({"--max-exec", "TIME", "Time limit of each command, like 1h; none"},
                policy.max_exec);
  options.value({"--max-execs", "N", "Total number of commands allowed; none"}, policy.max_execs);
  options.value({"--max-exec-total", "TIME", "Total run time of all commands; none"},
                policy.max_exec_total);
  options.value({"--disk", "SIZE", "Limit of files, snapshots and output, like 20G; none"},
                policy.disk);
  options.value({"--disk-files", "N", "Limit of the number of files; none"}, policy.disk_files);
  options.values({"--cache", "PATH", "gc may delete this when idle, like /home/user/.cache"},
                 policy.caches);
  options.value({"--snapshot", "WHEN", "before-exec,on-stop,10m (any of them), or manual"},
                policy.snapshot);
}

void add_policy(JsonObject& request, const PolicyOptions& policy) {
  const JsonObject limits = limits_of(policy);
  if (!limits.empty()) request.add("limits", limits);
  add_limit(request, "idle_stop_s", policy.idle_stop, "--idle-stop", seconds);
  add_limit(request, "max_lifetime_s", policy.max_lifetime, "--max-lifetime", seconds);
  if (policy.pre_stop == "none") {
    request.add("pre_stop", std::vector<std::string>());
  } else if (!policy.pre_stop.empty()) {
    request.add("pre_stop", policy.pre_stop);
  }
  add_limit(request, "pre_stop_deadline_s", policy.pre_stop_deadline, "--pre-stop-deadline",
            seconds);
  add_limit(request, "max_exec_s", policy.max_exec, "--max-exec", seconds);
  add_limit(request, "max_execs", policy.max_execs, "--max-execs", count);
  add_limit(request, "max_exec_total_s", policy.max_exec_total, "--max-exec-total", seconds);
  if (!policy.caches.empty()) request.add_bytes("caches", policy.caches);
  add_snapshot_moments(request, policy.snapshot);
}

}  // namespace moorage::cli
