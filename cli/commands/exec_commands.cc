// `exec`, `shell` and `run`: start a command and follow it to its end.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/commands.h"
#include "cli/commands/workspace_source.h"
#include "cli/local/git_author.h"
#include "cli/stream/exec_session.h"

namespace moorage::cli {
namespace {

struct ExecOptions {
  std::string workspace;
  std::vector<std::string> words;  // a command without options needs no --
  std::vector<std::string> env;
  std::string cwd;
  std::string user;
  std::string timeout;
  bool tty = false;
  int for_term = SIGTERM;
  bool detach = false;
  bool no_stdin = false;
  bool interactive = false;
  bool sync = false;
  bool free_space = false;
};

constexpr const char* kAlsoCwd = "-w,--workdir";

void declare_exec(Options& options, ExecOptions& exec) {
  options.flag({"-t,--tty", "", "Use a terminal; Ctrl-P Ctrl-Q detaches"}, exec.tty);
  options.value({"--timeout", "TIME", "Kill it and its children after this, like 5m"},
                exec.timeout);
  options.values({"-e,--env", "K=V", "Set a variable; K alone copies yours"}, exec.env);
  options.value({"--user", "NAME", "User in the sandbox"}, exec.user);
  options.value({"--cwd", "DIR", "Working directory, absolute or below /workspace", kAlsoCwd},
                exec.cwd);
  options.flag({"--sync", "", "Return when all its writes are safe on disk"}, exec.sync);
  options.flag({"--free-space", "", "Start even if the disk or its limit is full"},
               exec.free_space);
  options.flag({"-n,--no-stdin", "", "Use an empty standard input"}, exec.no_stdin);
  options.flag({"-i,--interactive", "", "Take all of standard input, not only what it reads"},
               exec.interactive);
}

std::map<std::string, std::string> environment_of(const ExecOptions& options) {
  std::map<std::string, std::string> env;
  const char* terminal = std::getenv("TERM");
  if (options.tty && terminal != nullptr) env["TERM"] = terminal;
  for (const std::string& entry : options.env) {
    if (entry.find('=') != std::string::npos) {
      const auto [key, value] = split_assignment(entry, "--env");
      env[key] = value;
      continue;
    }
    const char* ours = std::getenv(entry.c_str());
    if (ours == nullptr) throw Error(Code::invalid_argument, "--env " + entry + " is not set here");
    env[entry] = ours;
  }
  return env;
}

// Whether our output and error are one file, pipe or terminal. Then one pipe inside keeps the order
// of lines, as it would be here.
bool is_one_output() {
  struct stat output {};
  struct stat error {};
  return ::fstat(STDOUT_FILENO, &output) == 0 && ::fstat(STDERR_FILENO, &error) == 0 &&
         output.st_dev == error.st_dev && output.st_ino == error.st_ino &&
         (!S_ISCHR(output.st_mode) || ::isatty(STDOUT_FILENO) == 1);  // not /dev/null
}

// Captured output keeps its streams apart.
bool merges_output(const Context& context, const ExecOptions& options) {
  return !options.tty && !options.detach && !context.json && is_one_output();
}

std::string exec_body(const Context& context, const ExecOptions& options,
                      const std::vector<std::string>& argv) {
  JsonObject body;
  body.add_bytes("argv", argv);
  const auto env = environment_of(options);
  if (!env.empty()) body.add("env", env);
  if (!options.cwd.empty())
    body.add_bytes("cwd", options.cwd.starts_with('/') ? options.cwd : "/workspace/" + options.cwd);
  if (!options.user.empty()) body.add("user", options.user);
  if (!options.timeout.empty()) {
    body.add("timeout_ms", parse_duration_ms(options.timeout, "--timeout"));
  }
  if (merges_output(context, options)) body.add("merge_output", true);
  if (const auto author = git_author()) {
    body.add("git_author", JsonObject().add("name", author->name).add("email", author->email));
  }
  if (options.sync) body.add("sync", true);
  if (options.free_space) body.add("free_space", true);
  // A detached command can get input only through a terminal, by attach.
  body.add("stdin", options.detach ? options.tty : !options.no_stdin);
  if (options.tty) {
    const WindowSize size = window_size(STDOUT_FILENO);
    body.add("tty",
             JsonObject().add("columns", int64_t{size.columns}).add("rows", int64_t{size.rows}));
  }
  return body.str();
}

int start_detached(Context& context, const std::string& target, const std::string& body) {
  std::string warning;
  const std::string answer = context.api().send("POST", target, body, {.warning = &warning});
  if (!warning.empty()) context.note(warning);
  const auto exec = context.parse_or_print(answer);
  if (!exec) return 0;
  const std::string id = exec->text("id");
  // Scripts get the id alone.
  context.print(context.terminal.out ? label_line(id, "started; moorage attach " + id + " | logs " +
                                                          id + " -f | kill " + id)
                                     : id + "\n");
  return 0;
}

SessionEnd stand_for(Context& context, const ExecOptions& options, const std::string& target,
                     const std::string& body) {
  SessionPlan plan;
  plan.post_target = target;
  plan.post_body = body;
  plan.tty = options.tty;
  plan.for_term = options.for_term;
  plan.forward_stdin = !options.no_stdin;
  plan.share_stdin = !options.interactive && !options.tty;
  plan.merged = merges_output(context, options);
  plan.capture = context.json;
  return run_session(context, plan);
}

std::vector<std::string> command_of(const Context& context, const ExecOptions& options,
                                    const std::string& example) {
  std::vector<std::string> argv = options.words;
  argv.insert(argv.end(), context.command.begin(), context.command.end());
  if (argv.empty()) throw Error(Code::invalid_argument, "no command to run", example);
  return argv;
}

int exec(Context& context, const ExecOptions& options, const std::vector<std::string>& argv) {
  const std::string target = context.workspace_path(options.workspace, "/execs");
  const std::string body = exec_body(context, options, argv);
  if (options.detach) return start_detached(context, target, body);
  return finish_session(context, stand_for(context, options, target, body));
}

struct RunOptions {
  ExecOptions exec;
  WorkspaceSource source;
  bool remove = false;

  void declare(Options& options) {
    options.arguments({"COMMAND", "", "The command; put -- before it if it has options"},
                      exec.words);
    options.flag({"--rm", "", "Delete the workspace after the command"}, remove);
    source.declare(options);
    declare_exec(options, exec);
  }
};

int run(Context& context, const RunOptions& options) {
  const std::vector<std::string> argv =
      command_of(context, options.exec, "moorage run --rm --repo URL -- make check");
  const std::string body = exec_body(context, options.exec, argv);
  const Json workspace = Json::parse(make_workspace(context, options.source, options.remove));
  const std::string path = context.workspace_path(workspace.text("id"));
  const SessionEnd end = stand_for(context, options.exec, path + "/execs", body);
  const int code = finish_session(context, end);
  if (!options.remove) {
    if (!context.json) context.note("workspace kept: moorage show " + workspace.text("name"));
  } else if (end.how == SessionEnd::How::ended) {
    context.api().send("DELETE", path + "?purge=1");
  }
  return code;
}

}  // namespace

Action exec_command(Options& options) {
  auto exec_options = std::make_shared<ExecOptions>();
  options.argument({"NAME", "", "The workspace"}, exec_options->workspace);
  options.arguments({"COMMAND", "", "The command; put -- before it if it has options"},
                    exec_options->words);
  options.flag({"-d,--detach", "", "Print its id and leave it running"}, exec_options->detach);
  declare_exec(options, *exec_options);
  return run_with(exec_options, [](Context& context, const ExecOptions& given) {
    const std::string example = "moorage exec " + given.workspace + " -- make test";
    return exec(context, given, command_of(context, given, example));
  });
}

Action shell_command(Options& options) {
  auto exec_options = std::make_shared<ExecOptions>();
  auto command = std::make_shared<std::string>();
  options.argument({"NAME", "", "The workspace"}, exec_options->workspace);
  options.value({"-c", "COMMAND", "Run only this, without a terminal"}, *command);
  options.value({"--user", "NAME", "User in the sandbox"}, exec_options->user);
  options.value({"--cwd", "DIR", "Working directory; default: /workspace", kAlsoCwd},
                exec_options->cwd);
  return run_with(exec_options, [command](Context& context, ExecOptions given) {
    if (!context.command.empty()) {
      throw Error(Code::invalid_argument, "moorage shell takes no command",
                  "moorage exec " + given.workspace + " -- " + join_command(context.command));
    }
    if (!command->empty()) return exec(context, given, {"bash", "-l", "-c", *command});
    given.tty = true;
    given.for_term = SIGHUP;  // an interactive shell ignores TERM
    return exec(context, given, {"bash", "-l"});
  });
}

Action run_command(Options& options) { return run_with<RunOptions>(options, run); }

}  // namespace moorage::cli
