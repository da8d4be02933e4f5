#include "cli/commands/policy_options.h"

#include <charconv>
#include <cstdio>
#include <sstream>

#include "base/limit_ranges.h"
#include "base/size_text.h"
#include "cli/commands.h"

namespace moorage::cli {
namespace {

bool is_none(const std::string& text) { return text == "none" || text == "never" || text == "0"; }

// "none" is 0 on the wire, "default" (the daemon's settings) is -1; `Parse` reads everything else.
template <int64_t (*Parse)(const std::string& text, const std::string& option)>
void add_limit(JsonObject& request, std::string_view field, const std::string& text,
               const std::string& option) {
  int64_t value = 0;
  if (text == "default") {
    value = -1;
  } else if (!is_none(text)) {
    value = Parse(text, option);
  }
  request.add(field, value);
}
[[noreturn]] void refuse_limit(const std::string& option, const std::string& text,
                               const std::string& least, const std::string& most, bool or_none) {
  throw Error(Code::invalid_argument, option + " must be from " + least + " to " + most +
                                          (or_none ? ", or none" : "") + ", not '" + text + "'");
}
// Ranges are checked here, too: before a large checkout is read.
template <uint64_t Least, uint64_t Most, bool OrNone>
void add_size(JsonObject& request, std::string_view field, const std::string& text,
              const std::string& option) {
  const bool none = OrNone && is_none(text);
  const auto bytes = none ? 0 : base::parse_size(text);
  if (!none && (!bytes || *bytes < Least || *bytes > Most))
    refuse_limit(option, text, base::exact_size_text(Least), base::exact_size_text(Most), OrNone);
  request.add(field, static_cast<int64_t>(*bytes));
}
template <uint64_t Least, uint64_t Most, bool OrNone>
void add_count(JsonObject& request, std::string_view field, const std::string& text,
               const std::string& option) {
  const bool none = OrNone && is_none(text);
  uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  const bool valid = parsed.ec == std::errc() && parsed.ptr == end;
  if (!none && (!valid || count < Least || count > Most))
    refuse_limit(option, text, std::to_string(Least), std::to_string(Most), OrNone);
  request.add(field, static_cast<int64_t>(none ? 0 : count));
}
void add_cpus(JsonObject& request, std::string_view field, const std::string& text,
              const std::string& option) {
  double cpus = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, cpus, std::chars_format::fixed);
  const bool valid = parsed.ec == std::errc() && parsed.ptr == end;
  if (!valid || !(cpus >= base::kLeastCpus && cpus <= base::kMostCpus)) {
    refuse_limit(option, text, base::number_text(base::kLeastCpus),
                 base::number_text(base::kMostCpus), false);
  }
  request.add(field, cpus);
}
void add_script(JsonObject& request, std::string_view field, const std::string& text,
                const std::string&) {
  text == "none" ? request.add(field, std::vector<std::string>()) : request.add(field, text);
}

void add_network(JsonObject& request, std::string_view field, const std::string& text,
                 const std::string&) {
  request.add(field, text == "default" ? std::string() : text);
}
void add_text(JsonObject& request, std::string_view field, const std::string& text,
              const std::string&) {
  request.add(field, text);
}
std::string text_of(const Json& workspace, const std::string& field) {
  return workspace.text(field);
}
std::string branches_or_words(const Json& workspace, const std::string& field) {
  const auto words = workspace.byte_list(field);
  return words.empty() ? "refs/heads/*" : shorten(join_command(words), 60);
}
std::string text_or_default(const Json& workspace, const std::string& field) {
  const std::string text = workspace.text(field);
  return text.empty() ? "default" : text;
}

int64_t count(const std::string& text, const std::string& option) {
  return parse_count(text, option);
}
// Rounded up to whole seconds.
int64_t seconds(const std::string& text, const std::string& option) {
  return (parse_duration_ms(text, option) + 999) / 1000;
}

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
  const auto words = workspace.byte_list(field);
  return words.empty() ? "none" : shorten(join_command(words), 60);
}

// An option of text: how its value becomes a field, and the field text for people.
struct Row {
  const char* option;
  const char* placeholder;
  const char* help;
  std::string_view field;
  void (*add)(JsonObject&, std::string_view field, const std::string& text, const std::string&);
  std::string (*text)(const Json& workspace, const std::string& field);
};
constexpr std::string_view kLimits = "limits.";

constexpr Row kRows[] = {
    {"--memory", "SIZE", "Memory limit, like 4G", "limits.memory_bytes",
     add_size<base::kLeastMemoryBytes, base::kMostMemoryBytes, false>, size_or_none},
    {"--cpus", "N", "CPU limit, like 2 or 0.5", "limits.cpus", add_cpus, number_or_none},
    {"--pids", "N", "Limit on processes, at least 4", "limits.pids",
     add_count<base::kLeastPids, base::kMostPids, false>, number_or_none},
    {"--idle-stop", "TIME", "Stop it when idle this long, like 30m; never", "idle_stop_s",
     add_limit<seconds>, time_or_never},
    {"--max-lifetime", "TIME", "Stop it after this time even if busy, like 8h; none",
     "max_lifetime_s", add_limit<seconds>, time_or_none},
    {"--pre-stop", "SCRIPT", "Script to run before the sandbox stops; none", "pre_stop", add_script,
     words_or_none},
    {"--pre-stop-deadline", "TIME", "Time limit of that script, like 2m", "pre_stop_deadline_s",
     add_limit<seconds>, time_or_none},
    {"--max-exec", "TIME", "Time limit of each command, like 1h; none", "max_exec_s",
     add_limit<seconds>, time_or_none},
    {"--max-execs", "N", "Total number of commands allowed; none", "max_execs", add_limit<count>,
     number_or_none},
    {"--max-exec-total", "TIME", "Total run time of all commands; none", "max_exec_total_s",
     add_limit<seconds>, time_or_none},
    {"--disk", "SIZE", "Limit on files, snapshots and output, like 20G; none", "limits.disk_bytes",
     add_size<base::kLeastDiskBytes, base::kMostDiskBytes, true>, size_or_none},
    {"--disk-files", "N", "Limit on the number of files; none", "limits.disk_files",
     add_count<base::kLeastDiskFiles, base::kMostDiskFiles, true>, number_or_none},
    {"--network", "NAME", "Hosts it may reach: none, packages, dev, open; default", "network",
     add_network, text_or_default},
    {"--push", "MODE", "What git may push: refuse, ask (approve each), allow", "push", add_text,
     text_of}};

// Those of the given options that are limits of the sandbox, or the others.
std::vector<Row> given_rows(const PolicyOptions& policy, bool limits) {
  std::vector<Row> rows;
  for (const Row& row : kRows) {
    if (row.field.starts_with(kLimits) == limits && !policy.values.at(row.option).empty())
      rows.push_back(row);
  }
  return rows;
}

struct SetOptions {
  std::string name;
  PolicyOptions policy;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    policy.declare(options);
  }
};

void set(Context& context, const SetOptions& options) {
  const std::string path = context.workspace_path(options.name);
  const PolicyOptions& policy = options.policy;
  JsonObject request;
  add_policy(request, policy);
  if (request.empty()) {
    throw Error(
        Code::invalid_argument, "set needs an option",
        "the options: moorage set --help; the current values: moorage show " + options.name);
  }
  const Json before = context.json ? Json() : Json::parse(context.api().get(path));
  const auto after = context.parse_or_print(context.api().send("PATCH", path, request.str()));
  if (!after) return;
  context.print_label("set", after->text("name"));
  const auto print_change = [&](const std::string& option, const std::string& field,
                                const auto& text) {
    const std::string was = text(before, field), is = text(*after, field);
    context.print_label(
        "", option.substr(2) + " " + (was == is ? is + " (unchanged)" : was + " -> " + is));
  };
  for (const bool limits : {true, false}) {
    for (const Row& row : given_rows(policy, limits))
      print_change(row.option, std::string(row.field), row.text);
  }
  if (!policy.snapshot.empty()) print_change("--snapshot", "", snapshot_moments);
  if (!policy.caches.empty()) print_change("--cache", "caches", words_or_none);
  if (!policy.push_refs.empty()) print_change("--push-refs", "push_refs", branches_or_words);
  if (after->has("notice")) context.print_label("note", after->text("notice"));
}

}  // namespace

void PolicyOptions::declare(Options& options) {
  for (const Row& row : kRows)
    options.value({row.option, row.placeholder, row.help}, values[row.option]);
  options.values({"--cache", "PATH", "gc may delete this when idle, like /home/user/.cache"},
                 caches);
  options.values({"--push-refs", "PATTERN", "Refs it may push, like refs/heads/agent/*"},
                 push_refs);
  options.value({"--snapshot", "WHEN", "before-exec,on-stop,10m (any of them), or manual"},
                snapshot);
}

void add_policy(JsonObject& request, const PolicyOptions& policy) {
  JsonObject limits;
  for (const Row& row : given_rows(policy, true))
    row.add(limits, row.field.substr(kLimits.size()), policy.values.at(row.option), row.option);
  if (!limits.empty()) request.add("limits", limits);
  for (const Row& row : given_rows(policy, false))
    row.add(request, row.field, policy.values.at(row.option), row.option);
  if (!policy.caches.empty()) request.add_bytes("caches", policy.caches);
  if (!policy.push_refs.empty()) request.add_bytes("push_refs", policy.push_refs);
  add_snapshot_moments(request, policy.snapshot);
}

Action set_command(Options& options) { return run_with<SetOptions>(options, set); }

}  // namespace moorage::cli
