// `logs` and `attach`: the output of an existing command.
#include "cli/commands.h"
#include "cli/stream/exec_session.h"
#include "cli/stream/last_lines.h"
#include "cli/views/exec_result.h"

namespace moorage::cli {
namespace {

constexpr int64_t kMostLines = 1'000'000;  // bounds the memory to find them

struct LogsOptions {
  std::string name;
  std::string exec;
  std::string since_offset;
  std::string tail;
  bool follow = false;
  bool only_stdout = false;
  bool only_stderr = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "A workspace (its latest command) or a command's id"}, name);
    options.optional_argument({"EXEC", "", "One command of the workspace"}, exec);
    options.flag({"-f,--follow", "", "Follow until the command ends"}, follow);
    options.value({"-n,--tail", "N", "Only the last N lines"}, tail);
    options.value({"--since-offset", "N", "Skip the first N bytes of output"}, since_offset);
    options.flag({"--stdout", "", "Standard output only"}, only_stdout);
    options.flag({"--stderr", "", "Standard error only"}, only_stderr);
  }
};

// The latest command of the workspace.
std::string latest_exec(Context& context, const std::string& workspace) {
  const Json json = Json::parse(context.api().get(context.workspace_path(workspace, "/execs")));
  std::string latest, started;
  for (const Json& exec : json.items()) {
    const std::string at = exec.text("started_at");
    if (latest.empty() || at >= started) {
      latest = exec.text("id");
      started = at;
    }
  }
  if (latest.empty()) {
    throw Error(Code::not_found, "no commands in " + workspace + " yet",
                "moorage exec " + workspace + " -- make test");
  }
  return latest;
}

// In "logs auth ex_2" a command of another workspace is a mistake.
void check_belongs(Context& context, const std::string& exec, const std::string& workspace) {
  const std::string owner =
      Json::parse(context.api().get(context.exec_path(exec))).text("workspace");
  const Json named = Json::parse(context.api().get(context.workspace_path(workspace)));
  if (named.text("id") == owner) return;
  std::string name = owner;
  try {
    name = Json::parse(context.api().get(context.workspace_path(owner))).text("name", owner);
  } catch (const Error&) {
    // Purged: only its id is known.
  }
  throw Error(Code::invalid_argument, exec + " belongs to another workspace, " + name,
              "moorage logs " + exec + " | moorage ps " + workspace);
}

// Where to begin: the start, unless an option says otherwise.
uint64_t first_offset(Context& context, const LogsOptions& options, const SessionPlan& plan) {
  if (!options.tail.empty() && !options.since_offset.empty())
    throw Error(Code::invalid_argument, "--tail and --since-offset exclude each other");
  if (!options.tail.empty()) {
    const int64_t lines = parse_count(options.tail, "--tail");
    if (lines > kMostLines) {
      throw Error(Code::invalid_argument,
                  "--tail must be from 0 to " + std::to_string(kMostLines) + " lines",
                  "without it, logs prints all of the output");
    }
    return offset_of(context,
                     {plan.exec, static_cast<uint64_t>(lines), plan.show_stdout, plan.show_stderr});
  }
  return options.since_offset.empty()
             ? 0
             : static_cast<uint64_t>(parse_count(options.since_offset, "--since-offset"));
}

int print_logs(Context& context, const LogsOptions& options) {
  std::string exec = options.exec;
  if (exec.empty()) {
    exec = is_exec_id(options.name) ? options.name : latest_exec(context, options.name);
  }
  context.exec_path(exec);  // refuses an invalid id
  if (!options.exec.empty()) check_belongs(context, exec, options.name);
  SessionPlan plan;
  plan.exec = exec;
  plan.follow = options.follow;
  plan.late = true;
  plan.role = Role::reads_logs;
  plan.forward_stdin = false;
  // Both flags together mean the same as none.
  plan.show_stdout = options.only_stdout || !options.only_stderr;
  plan.show_stderr = options.only_stderr || !options.only_stdout;
  plan.capture = context.json;
  plan.offset = first_offset(context, options, plan);
  SessionEnd end = run_session(context, plan);
  if (end.how == SessionEnd::How::reader_gone) return finish_session(context, end);
  if (context.json) {
    if (end.how != SessionEnd::How::ended)
      end.record = Json::parse(context.api().get(context.exec_path(exec)));
    context.print_json(json_with_output(end.record, end.output));
  } else if (end.how == SessionEnd::How::ended) {
    note_end(context, end.record, Reading::its_logs, end.error_noted);
    if (!plan.show_stdout && end.record.flag("merge_output"))
      context.note(exec + " wrote both streams into one pipe; all of it: moorage logs " + exec);
  }
  return 0;
}

struct AttachOptions {
  std::string name;
  std::string exec;
  bool all = false;
  bool no_stdin = false;
  bool close_stdin = false;

  void declare(Options& options) {
    options.argument({"NAME", "EXEC", "The command's id, or the workspace that it runs in"}, name);
    options.optional_argument({"EXEC", "", "One command of the workspace"}, exec);
    options.flag({"--all", "", "Print its output from the beginning"}, all);
    options.flag({"-n,--no-stdin", "", "Watch; Ctrl-C leaves the command running"}, no_stdin);
    options.flag({"--close-stdin", "", "Close the command's input when yours ends"}, close_stdin);
  }
};

// The only running command of the workspace.
std::string running_exec(Context& context, const std::string& workspace) {
  const Json json = Json::parse(context.api().get(context.workspace_path(workspace, "/execs")));
  std::vector<std::string> running;
  for (const Json& exec : json.items()) {
    if (!has_ended(exec)) running.push_back(exec.text("id"));
  }
  if (running.size() == 1) return running.front();
  if (running.empty()) {
    throw Error(Code::not_found, "no command runs in " + workspace,
                "past output: moorage logs " + workspace);
  }
  throw Error(
      Code::invalid_argument,
      count_of(static_cast<int64_t>(running.size()), "command") + " run in " + workspace,
      "name one, such as: moorage attach " + running.front() + "; all: moorage ps " + workspace);
}

int attach(Context& context, const AttachOptions& options) {
  std::string id = options.exec.empty() ? options.name : options.exec;
  if (options.exec.empty() && !is_exec_id(id)) id = running_exec(context, id);
  const Json exec = Json::parse(context.api().get(context.exec_path(id)));
  if (!options.exec.empty()) check_belongs(context, id, options.name);
  SessionPlan plan;
  plan.exec = id;
  plan.offset = options.all ? 0 : static_cast<uint64_t>(exec.number("output_bytes"));
  plan.tty = exec.has("tty") && exec.text("tty") != "false";
  plan.forward_stdin = !options.no_stdin && !has_ended(exec);
  plan.stdin_offset = static_cast<uint64_t>(exec.number("stdin_accepted"));
  plan.close_stdin_at_end = options.close_stdin;
  plan.role = plan.forward_stdin ? Role::joins : Role::watches;
  plan.capture = context.json;
  return finish_session(context, run_session(context, plan));
}

}  // namespace

Action logs_command(Options& options) { return run_with<LogsOptions>(options, print_logs); }
Action attach_command(Options& options) { return run_with<AttachOptions>(options, attach); }

}  // namespace moorage::cli
