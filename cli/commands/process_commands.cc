// `ps`, `kill`, `wait`: running and past commands.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "cli/client/context.h"
#include "cli/client/workspace_pages.h"
#include "cli/commands.h"
#include "cli/output/text.h"
#include "cli/views/exec_result.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

std::vector<Json> execs_of(const std::string& answer) {
  const Json json = Json::parse(answer);
  return json.is_object() ? json.items("execs") : json.items();
}

Colour colour_of(const Json& exec) {
  if (!has_ended(exec)) return Colour::green;
  return exit_code_of(exec) == 0 ? Colour::plain : Colour::red;
}

// The most that the daemon lists.
constexpr size_t kListed = 1000;

struct PsOptions {
  std::string workspace;
  bool all = false;
};

// Execs have the id of their workspace; people know its name. Deleted workspaces keep the id.
std::map<std::string, std::string> workspace_names(Context& context) {
  std::map<std::string, std::string> names;
  for (const Json& workspace : all_workspaces(context).workspaces) {
    names[workspace.text("id")] = workspace.text("name");
  }
  return names;
}

int list_execs(Context& context, const PsOptions& options) {
  std::string target = options.all ? "/v1/execs" : "/v1/execs?running=1";
  if (!options.workspace.empty()) target = context.workspace_path(options.workspace, "/execs");
  const std::string answer = context.api().get(target);
  if (context.printed_json(answer)) return 0;
  const std::vector<Json> execs = execs_of(answer);
  if (execs.empty()) {
    context.print(options.workspace.empty() && !options.all
                      ? "no running commands; past ones: moorage ps --all\n"
                      : "no commands yet\n");
    return 0;
  }
  const int64_t now_ms = base::system_clock().wall_ms();
  std::map<std::string, std::string> names = workspace_names(context);
  Table table({{"EXEC"},
               {"WORKSPACE", false, true},
               {"STATE"},
               {"AGE", true},
               {"OUTPUT", true},
               {"COMMAND", false, true}});
  for (const Json& exec : execs) {
    const int64_t age = age_of(exec, "started_at", now_ms);
    const std::string id = exec.text("workspace");
    table.add({exec.text("id"),
               names.contains(id) ? names[id] : id,
               {end_text(exec), colour_of(exec)},
               age < 0 ? "-" : format_age(age),
               format_size(static_cast<uint64_t>(exec.number("output_bytes"))),
               join_command(exec.byte_list("argv"))});
  }
  context.print_table(table);
  if (execs.size() >= kListed) {
    context.note("showing the last " + std::to_string(kListed) +
                 "; all of a workspace: moorage history " +
                 (options.workspace.empty() ? "NAME" : options.workspace) + " -n 1000");
  }
  return 0;
}

struct KillOptions {
  std::string exec;
  std::string signal;
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

int kill_exec(Context& context, const KillOptions& options) {
  const bool cancel = options.signal.empty();
  const std::string name = cancel ? "" : signal_name(options.signal);
  if (cancel) {
    context.api().send("POST", context.exec_path(options.exec, "/cancel"));
  } else {
    context.api().send("POST", context.exec_path(options.exec, "/signal"),
                       JsonObject().add("signal", name).str());
  }
  if (context.json) {
    JsonObject done;
    done.add("exec", options.exec);
    cancel ? done.add("cancelling", true) : done.add("signal", name);
    context.print_json(done.str());
    return 0;
  }
  // Both return at once; the command may need time to react.
  context.print(label_line(
      options.exec,
      cancel ? "ending, killed if it does not end; wait for it: moorage wait " + options.exec
             : "received " + name));
  return 0;
}

int wait_for_exec(Context& context, const std::string& id) {
  constexpr int kPollMs = 30'000;  // for each request; the wait has no limit
  const std::string target = context.exec_path(id, "/wait?timeout_ms=" + std::to_string(kPollMs));
  for (;;) {
    const std::string answer = context.api().get(target);
    const Json exec = Json::parse(answer);
    if (!has_ended(exec)) continue;
    if (context.printed_json(answer)) return exit_code_of(exec);
    context.print(label_line(id, end_text(exec)));
    for (const std::string& notice : end_notices(exec)) context.note(notice);
    return exit_code_of(exec);
  }
}

}  // namespace

Action ps_command(Options& options) {
  auto ps = std::make_shared<PsOptions>();
  options.optional_argument({"NAME", "", "List all commands of this workspace"}, ps->workspace);
  options.flag({"-a,--all", "", "Include ended commands"}, ps->all);
  return [ps](Context& context) { return list_execs(context, *ps); };
}

Action kill_command(Options& options) {
  auto kill = std::make_shared<KillOptions>();
  options.argument({"EXEC", "", "The command's id"}, kill->exec);
  options.optional_argument({"SIGNAL", "", "Signal, like INT; default: end it and its children"},
                            kill->signal);
  return [kill](Context& context) { return kill_exec(context, *kill); };
}

Action wait_command(Options& options) {
  auto id = std::make_shared<std::string>();
  options.argument({"EXEC", "", "The command's id"}, *id);
  return [id](Context& context) { return wait_for_exec(context, *id); };
}

}  // namespace moorage::cli
