// `start`, `stop`, `rm`, `undelete`: one request each, one line of answer.
#include "base/size_text.h"
#include "cli/client/workspace_pages.h"
#include "cli/commands.h"
#include "cli/views/progress.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

struct Wanted {
  std::vector<std::string> names;
  std::string new_name;
  std::string wait;
  bool purge = false;
  bool no_hook = false;
  bool force = false;
  bool all = false;
  int64_t wait_ms() const { return parse_duration_ms(wait, "--wait"); }
};

struct Verb {
  std::string method;
  std::string rest;   // after /v1/workspaces/NAME
  std::string label;  // of the line that reports success
  std::string body = {};
};

void warn_of_changes(const Context& context, const Json& workspace) {
  if (workspace.text("integrity.state") != "changed-outside") return;
  context.note(workspace.text("name") +
               " was changed outside Moorage: " + workspace.text("integrity.reason"));
}

// "; ended 1 running command: ex_9"
std::string ended_text(const Json& done, const Verb& verb) {
  const std::vector<Json> ended = done.items("ended");
  std::string text;
  for (const Json& id : ended) text += (text.empty() ? ": " : ", ") + id.text();
  const auto count = static_cast<int64_t>(ended.size());
  if (count > 0) return "; ended " + count_of(count, "running command") + text;
  if (verb.rest != "/stop") return "";
  return std::string("; the next exec starts it") +
         (is_ours(done) ? "; only you can delete it" : "");
}

// Applies the verb to each workspace in turn; `describe` makes the rest of the line.
void for_each(Context& context, const std::vector<std::string>& names, const Verb& verb,
              const std::function<std::string(const std::string&, const Stopwatch&)>& describe) {
  for (const std::string& name : names) {
    const Stopwatch watch;
    const std::string answer =
        // pre_stop may take long.
        context.api().send(verb.method, context.workspace_path(name, verb.rest), verb.body,
                           {.slow = true});
    if (verb.rest == "/start") warn_of_changes(context, Json::parse(answer));
    if (context.json) {
      // The answer of a purge is empty.
      context.print_json(
          answer.empty() ? JsonObject().add("workspace", name).add("purged", true).str() : answer);
      continue;
    }
    const Json done = answer.empty() ? Json() : Json::parse(answer);
    context.print_label(verb.label, describe(name, watch) + ended_text(done, verb));
    if (done.has("notice")) context.note(done.text("notice"));
  }
}

void start(Context& context, const Wanted& wanted) {
  for_each(
      context, wanted.names, {"POST", "/start", "started"},
      [](const std::string& name, const Stopwatch& watch) { return name + "   " + watch.took(); });
}

// The running ones of the caller, even for root: nobody stops what others run by accident.
std::vector<std::string> own_running(Context& context) {
  std::vector<std::string> names;
  int64_t others = 0;
  for (const Json& workspace : all_workspaces(context).workspaces) {
    if (workspace.text("sandbox.state") != "running") continue;
    if (is_ours(workspace)) {
      names.push_back(workspace.text("name"));
    } else {
      ++others;
    }
  }
  if (others > 0)
    context.note("of other users, " + count_of(others, "sandbox") + " still " +
                 base::verb_text(static_cast<uint64_t>(others), "run") + "; moorage ls lists them");
  return names;
}

int stop(Context& context, const Wanted& wanted) {
  JsonObject request;
  if (wanted.no_hook) request.add("no_hook", true);
  if (wanted.force) request.add("force", true);
  if (!wanted.wait.empty()) request.add("wait_ms", wanted.wait_ms());
  const std::string body = request.empty() ? "" : request.str();
  for_each(context, wanted.names, {"POST", "/stop", "stopped", body},
           [](const std::string& name, const Stopwatch&) { return name + "   files kept"; });
  return 0;
}

// One that cannot be stopped keeps no other from it.
int stop_all(Context& context, Wanted wanted) {
  if (!wanted.names.empty())
    throw Error(Code::invalid_argument, "--all takes no names of workspaces");
  const std::vector<std::string> names = own_running(context);
  if (names.empty() && !context.json) context.print("none of your sandboxes runs\n");
  int code = 0;
  for (const std::string& name : names) {
    try {
      wanted.names = {name};
      stop(context, wanted);
    } catch (const Error& error) {
      context.note(error.message() + (error.hint().empty() ? "" : "; " + error.hint()));
      code = kFailed;
    }
  }
  return code;
}

int stop_named_or_all(Context& context, const Wanted& wanted) {
  if (wanted.all) return stop_all(context, wanted);
  if (wanted.names.empty())
    throw Error(Code::invalid_argument, "NAME is required", "moorage stop --help");
  return stop(context, wanted);
}

void remove(Context& context, const Wanted& wanted) {
  std::string query;
  const auto add = [&](const std::string& part) { query += (query.empty() ? "?" : "&") + part; };
  if (wanted.purge) add("purge=1");
  if (wanted.force) add("force=1");
  if (!wanted.wait.empty()) add("wait_ms=" + std::to_string(wanted.wait_ms()));
  for_each(context, wanted.names, {"DELETE", query, "deleted"},
           [&](const std::string& name, const Stopwatch&) {
             return name +
                    (wanted.purge ? "   for good" : "   restore with: moorage undelete " + name);
           });
}

void undelete(Context& context, const Wanted& wanted) {
  const std::string& new_name = wanted.new_name;
  if (!new_name.empty() && wanted.names.size() > 1)
    throw Error(Code::invalid_argument, "--name takes one workspace only");
  const std::string body = new_name.empty() ? "" : JsonObject().add("name", new_name).str();
  for_each(context, wanted.names, {"POST", "/undelete", "back", body},
           [&](const std::string& name, const Stopwatch&) {
             return new_name.empty() ? name : new_name;
           });
}

std::shared_ptr<Wanted> declare_names(Options& options, const char* which = "") {
  auto wanted = std::make_shared<Wanted>();
  options.required_arguments({"NAME", which, "The workspaces"}, wanted->names);
  return wanted;
}

void declare_busy(Options& options, Wanted& wanted) {
  options.flag({"-f,--force", "", "End its running commands"}, wanted.force);
  options.value({"--wait", "TIME", "Wait for its running commands, at most this long"},
                wanted.wait);
}

}  // namespace

Action start_command(Options& options) { return run_with(declare_names(options), start); }

Action stop_command(Options& options) {
  auto wanted = std::make_shared<Wanted>();
  options.arguments({"NAME", "", "The workspaces"}, wanted->names);
  options.flag({"--all", "", "All your running ones"}, wanted->all);
  options.flag({"--no-hook", "", "Skip its pre_stop script"}, wanted->no_hook);
  declare_busy(options, *wanted);
  return run_with(wanted, stop_named_or_all);
}

Action rm_command(Options& options) {
  auto wanted = declare_names(options);
  options.flag({"--purge", "", "Free the space now; undelete is then impossible"}, wanted->purge);
  declare_busy(options, *wanted);
  return run_with(wanted, remove);
}

Action undelete_command(Options& options) {
  auto wanted = declare_names(options, "DELETED");
  options.value({"--name", "NAME", "Restore it under this name"}, wanted->new_name);
  return run_with(wanted, undelete);
}

}  // namespace moorage::cli
