// `start`, `stop`, `rm`, `undelete`: one request each, one line of answer.
#include <chrono>

#include "base/error.h"
#include "cli/client/context.h"
#include "cli/client/json.h"
#include "cli/commands.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Verb {
  std::string method;
  std::string rest;   // after /v1/workspaces/NAME
  std::string label;  // of the line that reports success
  std::string body = {};
};

void warn_of_changes(const Context& context, const Json& workspace) {
  if (workspace.text("integrity.state") != "changed-outside") return;
  context.note(workspace.text("name") +
               " was changed outside: " + workspace.text("integrity.reason"));
}

// "; ended 1 running command: ex_9"
std::string ended_text(const std::vector<Json>& ended, const Verb& verb) {
  std::string text;
  for (const Json& id : ended) text += (text.empty() ? ": " : ", ") + id.text();
  const auto count = static_cast<int64_t>(ended.size());
  if (count > 0) return "; ended " + count_of(count, "running command") + text;
  return verb.rest == "/stop" ? "; the next exec starts it. Nothing deletes it but you." : "";
}

// Applies the verb to each workspace in turn; `describe` makes the rest of the line.
int for_each(Context& context, const std::vector<std::string>& names, const Verb& verb,
             const std::function<std::string(const std::string&, milliseconds)>& describe) {
  for (const std::string& name : names) {
    const auto began = steady_clock::now();
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
    const auto took = duration_cast<milliseconds>(steady_clock::now() - began);
    const Json done = answer.empty() ? Json() : Json::parse(answer);
    context.print(
        label_line(verb.label, describe(name, took) + ended_text(done.items("ended"), verb)));
    if (done.has("notice")) context.note(done.text("notice"));
  }
  return 0;
}

struct NamesOption {
  std::vector<std::string> names;
  bool purge = false;
  bool no_hook = false;
  bool force = false;
  std::string wait;
  int64_t wait_ms() const { return wait.empty() ? 0 : parse_duration_ms(wait, "--wait"); }
};

std::shared_ptr<NamesOption> declare_names(Options& options, const char* which = "") {
  auto chosen = std::make_shared<NamesOption>();
  options.required_arguments({"NAME", which, "The workspaces"}, chosen->names);
  return chosen;
}

void declare_busy(Options& options, NamesOption& chosen) {
  options.flag({"-f,--force", "", "End its running commands"}, chosen.force);
  options.value({"--wait", "TIME", "Wait for its running commands, at most this long"},
                chosen.wait);
}

}  // namespace

Action start_command(Options& options) {
  auto chosen = declare_names(options);
  return [chosen](Context& context) {
    return for_each(context, chosen->names, {"POST", "/start", "started"},
                    [](const std::string& name, milliseconds took) {
                      return name + "   " + format_took(took.count());
                    });
  };
}

Action stop_command(Options& options) {
  auto chosen = declare_names(options);
  options.flag({"--no-hook", "", "Skip its pre_stop script"}, chosen->no_hook);
  declare_busy(options, *chosen);
  return [chosen](Context& context) {
    JsonObject wanted;
    if (chosen->no_hook) wanted.add("no_hook", true);
    if (chosen->force) wanted.add("force", true);
    if (!chosen->wait.empty()) wanted.add("wait_ms", chosen->wait_ms());
    const std::string body = wanted.empty() ? "" : wanted.str();
    return for_each(context, chosen->names, {"POST", "/stop", "stopped", body},
                    [](const std::string& name, milliseconds) { return name + "   files kept"; });
  };
}

Action rm_command(Options& options) {
  auto chosen = declare_names(options);
  options.flag({"--purge", "", "Free the space now; undelete is then impossible"}, chosen->purge);
  declare_busy(options, *chosen);
  return [chosen](Context& context) {
    const bool purge = chosen->purge;
    std::string query;
    const auto add = [&](const std::string& part) { query += (query.empty() ? "?" : "&") + part; };
    if (purge) add("purge=1");
    if (chosen->force) add("force=1");
    if (!chosen->wait.empty()) add("wait_ms=" + std::to_string(chosen->wait_ms()));
    return for_each(context, chosen->names, {"DELETE", query, "deleted"},
                    [purge](const std::string& name, milliseconds) {
                      return name +
                             (purge ? "   for good" : "   restore with: moorage undelete " + name);
                    });
  };
}

Action undelete_command(Options& options) {
  auto chosen = declare_names(options, "DELETED");
  auto new_name = std::make_shared<std::string>();
  options.value({"--name", "NAME", "Restore it under this name"}, *new_name);
  return [chosen, new_name](Context& context) {
    if (new_name->empty()) {
      return for_each(context, chosen->names, {"POST", "/undelete", "back"},
                      [](const std::string& name, milliseconds) { return name; });
    }
    if (chosen->names.size() > 1) {
      throw Error(Code::invalid_argument, "--name takes one workspace only");
    }
    const std::string body = JsonObject().add("name", *new_name).str();
    return for_each(context, chosen->names, {"POST", "/undelete", "back", body},
                    [&](const std::string&, milliseconds) { return *new_name; });
  };
}

}  // namespace moorage::cli
