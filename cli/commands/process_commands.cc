// `ps`, `kill`, `wait`, `history`: running and past commands.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>

#include "base/clock.h"
#include "cli/client/workspace_pages.h"
#include "cli/commands.h"
#include "cli/views/exec_result.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

Cell end_cell(const Json& exec) {
  Colour colour = exit_code_of(exec) == 0 ? Colour::plain : Colour::red;
  if (!has_ended(exec)) colour = Colour::green;
  return {end_text(exec), colour};
}

// The most that the daemon lists.
constexpr size_t kListed = 1000;

struct PsOptions {
  std::string workspace;
  bool all = false;

  void declare(Options& options) {
    options.optional_argument({"NAME", "", "List all commands of this workspace"}, workspace);
    options.flag({"-a,--all", "", "Include ended commands"}, all);
  }
};

// Execs have the id of their workspace; people know its name. Deleted workspaces keep the id.
std::map<std::string, std::string> workspace_names(Context& context) {
  std::map<std::string, std::string> names;
  for (const Json& workspace : all_workspaces(context).workspaces) {
    names[workspace.text("id")] = workspace.text("name");
  }
  return names;
}

void list_execs(Context& context, const PsOptions& options) {
  std::string target = options.all ? "/v1/execs" : "/v1/execs?running=1";
  if (!options.workspace.empty()) target = context.workspace_path(options.workspace, "/execs");
  const auto answer = context.parse_or_print(context.api().get(target));
  if (!answer) return;
  const std::vector<Json> execs = answer->items();
  if (execs.empty()) {
    return context.print(options.workspace.empty() && !options.all
                             ? "no running commands; past ones: moorage ps --all\n"
                             : "no commands yet\n");
  }
  const int64_t now_ms = base::system_clock().wall_ms();
  std::map<std::string, std::string> names = workspace_names(context);
  Table table(
      {"EXEC", shrinks("WORKSPACE"), "STATE", right("AGE"), right("OUTPUT"), shrinks("COMMAND")});
  for (const Json& exec : execs) {
    const int64_t age = age_of(exec, "started_at", now_ms);
    const std::string id = exec.text("workspace");
    table.add({exec.text("id"), names.contains(id) ? names[id] : id, end_cell(exec),
               age < 0 ? "-" : format_age(age), size_text(exec, "output_bytes"),
               join_command(exec.byte_list("argv"))});
  }
  context.print_table(table);
  if (execs.size() < kListed) return;
  const std::string shown = "showing the last " + std::to_string(execs.size());
  if (options.workspace.empty())
    return context.note(shown + "; all of a workspace: moorage history NAME -n 1000");
  target = context.workspace_path(options.workspace, "/history?limit=1");
  const int64_t total = Json::parse(context.api().get(target)).number("total");
  if (total <= static_cast<int64_t>(execs.size())) return;
  context.note(shown + " of " + std::to_string(total) + "; older: moorage history " +
               options.workspace + " -n 1000 --before " + execs.back().text("id"));
}

struct KillOptions {
  std::string exec;
  std::string signal;

  void declare(Options& options) {
    options.argument({"EXEC", "", "The command's id"}, exec);
    options.optional_argument({"SIGNAL", "", "Signal, like INT; default: end it and its children"},
                              signal);
  }
};

// Accepts "sigterm" and "15" for TERM.
std::string signal_name(const std::string& text) {
  std::string name = text;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (name.starts_with("SIG")) name.erase(0, 3);
  const bool number = !name.empty() && std::all_of(name.begin(), name.end(), ::isdigit);
  if (!number || name.size() > 2) return name;
  const char* known = ::sigabbrev_np(std::stoi(name));
  if (known == nullptr) throw Error(Code::invalid_argument, "unknown signal " + text);
  return known;
}

void kill_exec(Context& context, const KillOptions& options) {
  const bool cancel = options.signal.empty();
  const std::string name = cancel ? "" : signal_name(options.signal);
  context.api().send("POST", context.exec_path(options.exec, cancel ? "/cancel" : "/signal"),
                     cancel ? "" : JsonObject().add("signal", name).str());
  JsonObject done;
  done.add("exec", options.exec);
  cancel ? done.add("cancelling", true) : done.add("signal", name);
  if (context.json) return context.print_json(done);
  // Both return at once; the command may need time to react.
  context.print_label(
      options.exec,
      cancel ? "ending, killed if it does not end; wait for it: moorage wait " + options.exec
             : "received " + name);
}

int wait_for_exec(Context& context, const std::string& id) {
  constexpr int kPollMs = 30'000;  // for each request; the wait has no limit
  const std::string target = context.exec_path(id, "/wait?timeout_ms=" + std::to_string(kPollMs));
  for (;;) {
    const std::string answer = context.api().get(target);
    const Json exec = Json::parse(answer);
    if (!has_ended(exec)) continue;
    if (context.json) {
      context.print_json(answer);
    } else {
      context.print_label(id, end_text(exec));
      note_end(context, exec, Reading::its_end, false);
    }
    return exit_code_of(exec);
  }
}

struct HistoryOptions {
  std::string workspace;
  std::string limit;
  std::string before;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, workspace);
    options.value({"-n,--limit", "N", "Show the last N commands; default: 100"}, limit);
    options.value({"--before", "EXEC", "Show only commands older than this one"}, before);
  }
};

void check_limit(const std::string& text) {
  int limit = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, limit);
  if (parsed.ec != std::errc() || parsed.ptr != end || limit < 1 || limit > 1000)
    throw Error(Code::invalid_argument, "--limit takes 1 to 1000, not '" + text + "'");
}

std::string took_text(const Json& exec, int64_t now_ms) {
  const auto started = parse_utc(exec.text("started_at"));
  if (!started) return "-";
  const int64_t ended = parse_utc(exec.text("ended_at")).value_or(now_ms);
  return format_took(std::max<int64_t>(0, ended - *started));
}

void note_older(Context& context, const HistoryOptions& options, const std::vector<Json>& execs,
                int64_t total) {
  const auto shown = static_cast<int64_t>(execs.size());
  const bool fits = options.before.empty() && total <= static_cast<int64_t>(kListed);
  context.note("showing " + std::string(options.before.empty() ? "the last " : "") +
               std::to_string(shown) + " of " + std::to_string(total) +
               (fits ? "; all: -n " + std::to_string(total)
                     : "; older: --before " + execs.front().text("id")));
}

void print_history(Context& context, const HistoryOptions& options) {
  std::string rest = "/history?limit=" + (options.limit.empty() ? "100" : options.limit);
  if (!options.limit.empty()) check_limit(options.limit);
  if (!options.before.empty()) {
    if (!is_exec_id(options.before))
      throw Error(Code::invalid_argument, "--before takes a command's id, like ex_12");
    rest += "&before=" + options.before;
  }
  const auto history =
      context.parse_or_print(context.api().get(context.workspace_path(options.workspace, rest)));
  if (!history) return;
  const std::vector<Json> execs = history->items("execs");
  if (execs.empty()) return context.print("no commands yet\n");
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({"EXEC", right("STARTED"), right("TOOK"), "BY", "END", right("CHANGED"),
               right("OUTPUT"), shrinks("COMMAND")});
  for (const Json& exec : execs) {
    const int64_t age = age_of(exec, "started_at", now_ms);
    table.add({exec.text("id"), age < 0 ? "-" : format_age(age) + " ago", took_text(exec, now_ms),
               exec.text("hook", owner_text(exec)), end_cell(exec),
               exec.has("changed_files") ? count_of(exec.number("changed_files"), "file") : "-",
               size_text(exec, "output_bytes"), join_command(exec.byte_list("argv"))});
  }
  context.print_table(table);
  if (history->flag("truncated")) note_older(context, options, execs, history->number("total"));
  if (history->text("workspace.state") == "deleted")
    context.note("the workspace is deleted; restore it: moorage undelete " +
                 history->text("workspace.id"));
}

}  // namespace

Action ps_command(Options& options) { return run_with<PsOptions>(options, list_execs); }
Action kill_command(Options& options) { return run_with<KillOptions>(options, kill_exec); }

Action wait_command(Options& options) {
  return run_with_argument(options, {"EXEC", "", "The command's id"}, wait_for_exec);
}

Action history_command(Options& options) {
  return run_with<HistoryOptions>(options, print_history);
}

}  // namespace moorage::cli
