// `snapshot`, `snapshots`, `drop`, `restore`, `undo`, `fork`, `promote`, `tree`: saved states of a
// workspace, to restore and to fork.
#include <chrono>

#include "base/error.h"
#include "cli/client/context.h"
#include "cli/client/json.h"
#include "cli/commands.h"
#include "cli/output/text.h"
#include "cli/views/lineage.h"

namespace moorage::cli {
namespace {

struct Wanted {
  std::string workspace;
  std::string snapshot;
  std::string external_id;
  std::string count;
  std::vector<std::string> names;
  bool kill = false;
};

std::string time_of(const Json& thing) {
  const auto at = parse_utc(thing.text("created_at"));
  if (!at) return "?";
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return format_age(now.count() - *at);
}

// "frozen for 11 ms"; "" for a stopped workspace.
std::string pause_of(const Json& snapshot) {
  const int64_t pause_us = snapshot.number("pause_us");
  if (snapshot.text("way") == "at-rest") return {};
  return "frozen for " + format_took((pause_us + 999) / 1000);
}

std::string post(Context& context, const Wanted& wanted, const char* verb, const JsonObject& body) {
  return context.api().send("POST", context.workspace_path(wanted.workspace, verb), body.str(),
                            {.slow = true});
}

int take(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (!wanted.snapshot.empty()) body.add("name", wanted.snapshot);
  if (!wanted.external_id.empty()) body.add("external_id", wanted.external_id);
  const std::string answer = post(context, wanted, "/snapshots", body);
  if (context.printed_json(answer)) return 0;
  const Json snapshot = Json::parse(answer);
  const std::string name = snapshot.text("name");
  const std::string pause = pause_of(snapshot);
  context.print(label_line("kept", snapshot.text("id") + (name.empty() ? "" : "   " + name) +
                                       (pause.empty() ? "" : "   " + pause) +
                                       "   restore with: moorage restore " + wanted.workspace +
                                       " " + (name.empty() ? snapshot.text("id") : name)));
  return 0;
}

int list(Context& context, const Wanted& wanted) {
  const std::string answer =
      context.api().get(context.workspace_path(wanted.workspace, "/snapshots"));
  if (context.printed_json(answer)) return 0;
  Table table({{"ID"}, {"NAME"}, {"AGE"}, {"SIZE", true}, {"TAKEN"}, {"ON"}, {"DURABLE"}});
  for (const Json& row : Json::parse(answer).items("snapshots")) {
    const std::string pause = pause_of(row);
    const bool measured = row.has("disk_bytes");
    table.add({row.text("id"), row.text("name", "-"), time_of(row),
               measured ? format_size(static_cast<uint64_t>(row.number("disk_bytes"))) : "-",
               row.text("cause") + (pause.empty() ? "" : ", " + pause), row.text("parent", "base"),
               row.flag("durable") ? "yes" : "not yet"});
  }
  if (table.empty()) {
    context.print(label_line("none", "take one: moorage snapshot " + wanted.workspace));
    return 0;
  }
  context.print_table(table);
  return 0;
}

int restore(Context& context, const Wanted& wanted) {
  JsonObject body;
  body.add("snapshot", wanted.snapshot);
  if (wanted.kill) body.add("kill", true);
  const std::string answer = post(context, wanted, "/restore", body);
  if (context.printed_json(answer)) return 0;
  context.print(label_line("restored", wanted.workspace + "   as of " + wanted.snapshot +
                                           "; previous state: moorage snapshots " +
                                           wanted.workspace));
  return 0;
}

int undo(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (!wanted.snapshot.empty()) body.add("exec", wanted.snapshot);
  if (wanted.kill) body.add("kill", true);
  const std::string answer = post(context, wanted, "/undo", body);
  if (context.printed_json(answer)) return 0;
  context.print(
      label_line("undone", wanted.workspace + "   as of " + Json::parse(answer).text("stands_on") +
                               "; previous state: moorage snapshots " + wanted.workspace));
  return 0;
}

int fork(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (!wanted.snapshot.empty()) body.add("snapshot", wanted.snapshot);
  if (!wanted.names.empty()) body.add("names", wanted.names);
  if (!wanted.count.empty()) {
    if (!wanted.names.empty())
      throw Error(Code::invalid_argument, "--count and names of forks exclude each other");
    body.add("count", static_cast<int64_t>(parse_number(wanted.count, "--count")));
  }
  const std::string answer = post(context, wanted, "/fork", body);
  if (context.printed_json(answer)) return 0;
  for (const Json& made : Json::parse(answer).items("workspaces")) {
    context.print(label_line("forked", made.text("name") + "   of " + wanted.workspace + ", at " +
                                           made.text("forked_from")));
  }
  return 0;
}

int promote(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (wanted.kill) body.add("kill", true);
  const std::string answer = post(context, wanted, "/promote", body);
  if (context.printed_json(answer)) return 0;
  const std::string name = Json::parse(answer).text("name");
  context.print(label_line("promoted", name + " now has the contents of " + wanted.workspace +
                                           "; previous state: moorage snapshots " + name));
  return 0;
}

std::shared_ptr<Wanted> declare_name(Options& options) {
  auto wanted = std::make_shared<Wanted>();
  options.argument({"NAME", "", "The workspace"}, wanted->workspace);
  return wanted;
}

template <typename Run>
Action with(const std::shared_ptr<Wanted>& wanted, Run run) {
  return [wanted, run](Context& context) { return run(context, *wanted); };
}

}  // namespace

Action snapshot_command(Options& options) {
  auto wanted = declare_name(options);
  options.optional_argument({"LABEL", "", "Name of the snapshot"}, wanted->snapshot);
  options.value({"--external-id", "ID", "Its id in another program, such as a checkpoint"},
                wanted->external_id);
  return with(wanted, take);
}

Action snapshots_command(Options& options) {
  auto wanted = declare_name(options);
  return with(wanted, list);
}

Action drop_command(Options& options) {
  auto wanted = declare_name(options);
  options.argument({"SNAPSHOT", "", "Id or name of the snapshot"}, wanted->snapshot);
  return [wanted](Context& context) {
    context.api().send("DELETE", context.workspace_path(wanted->workspace, "/snapshots/") +
                                     percent_encode(wanted->snapshot));
    if (context.json) {
      context.print_json(JsonObject().add("dropped", wanted->snapshot).str());
      return 0;
    }
    context.print(
        label_line("dropped", wanted->snapshot + "   forks and later snapshots are unaffected"));
    return 0;
  };
}

Action restore_command(Options& options) {
  auto wanted = declare_name(options);
  options.argument({"SNAPSHOT", "", "Id or name of the snapshot"}, wanted->snapshot);
  options.flag({"--kill", "", "End the commands that run in the workspace"}, wanted->kill);
  return with(wanted, restore);
}

Action undo_command(Options& options) {
  auto wanted = declare_name(options);
  options.optional_argument({"EXEC", "", "The command; default: the last one not undone"},
                            wanted->snapshot);
  options.flag({"--kill", "", "End the commands that run in the workspace"}, wanted->kill);
  return with(wanted, undo);
}

Action fork_command(Options& options) {
  auto wanted = declare_name(options);
  options.arguments({"FORK", "", "Names of the forks; default: NAME-1, NAME-2..."}, wanted->names);
  options.value({"--count", "N", "Number of forks; default: 1"}, wanted->count);
  options.value({"--at", "SNAPSHOT", "Fork this snapshot; default: the current state"},
                wanted->snapshot);
  return with(wanted, fork);
}

Action promote_command(Options& options) {
  auto wanted = std::make_shared<Wanted>();
  options.argument({"FORK", "NAME", "The fork"}, wanted->workspace);
  options.flag({"--kill", "", "End the commands that run in its parent"}, wanted->kill);
  return with(wanted, promote);
}

Action tree_command(Options& options) {
  auto wanted = declare_name(options);
  return [wanted](Context& context) {
    const std::string answer =
        context.api().get(context.workspace_path(wanted->workspace, "/tree"));
    if (context.printed_json(answer)) return 0;
    for (const auto& line : draw_lineage(Json::parse(answer))) context.print(line + "\n");
    return 0;
  };
}

}  // namespace moorage::cli
