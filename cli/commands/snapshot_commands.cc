// `snapshot`, `snapshots`, `drop`, `restore`, `undo`, `fork`, `promote`, `tree`: saved states of a
// workspace, to restore and to fork.
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/views/lineage.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

struct Wanted {
  std::string workspace;
  std::string snapshot;
  std::string external_id;
  std::string count;
  std::vector<std::string> names;
  std::vector<std::string> more_names;  // by --name, as `name`
  std::string name;
  bool kill = false;
};

// "frozen for 11 ms"; "" for a stopped workspace.
std::string pause_of(const Json& snapshot) {
  const int64_t pause_us = snapshot.number("pause_us");
  if (snapshot.text("way") == "at-rest") return {};
  return "frozen for " + format_took((pause_us + 999) / 1000);
}

// Nothing with --json, which prints the answer.
std::optional<Json> post(Context& context, const Wanted& wanted, const char* verb,
                         const JsonObject& body) {
  return context.parse_or_print(context.api().send(
      "POST", context.workspace_path(wanted.workspace, verb), body.str(), {.slow = true}));
}

void take(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (!wanted.snapshot.empty() && !wanted.name.empty())
    throw Error(Code::invalid_argument, "LABEL and --name both name the snapshot: use one of them");
  const std::string label = wanted.snapshot.empty() ? wanted.name : wanted.snapshot;
  if (!label.empty()) body.add("name", label);
  if (!wanted.external_id.empty()) body.add("external_id", wanted.external_id);
  const auto snapshot = post(context, wanted, "/snapshots", body);
  if (!snapshot) return;
  const std::string name = snapshot->text("name");
  const std::string pause = pause_of(*snapshot);
  context.print_label("kept", snapshot->text("id") + (name.empty() ? "" : "   " + name) +
                                  (pause.empty() ? "" : "   " + pause) +
                                  "   restore with: moorage restore " + wanted.workspace + " " +
                                  (name.empty() ? snapshot->text("id") : name));
}

void list(Context& context, const std::string& workspace) {
  const auto snapshots =
      context.parse_or_print(context.api().get(context.workspace_path(workspace, "/snapshots")));
  if (!snapshots) return;
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({"ID", "NAME", "AGE", right("SIZE"), "TAKEN", "ON", "DURABLE"});
  for (const Json& row : snapshots->items("snapshots")) {
    const std::string pause = pause_of(row);
    const int64_t age = age_of(row, "created_at", now_ms);
    table.add({row.text("id"), row.text("name", "-"), age < 0 ? "?" : format_age(age),
               size_or_dash(row, "disk_bytes"),
               row.text("cause") + (pause.empty() ? "" : ", " + pause), row.text("parent", "base"),
               row.flag("durable") ? "yes" : "not yet"});
  }
  table.empty() ? context.print_label("none", "take one: moorage snapshot " + workspace)
                : context.print_table(table);
}

// For the verbs that replace the contents of a workspace.
void print_replaced(const Context& context, const char* verb, const std::string& workspace,
                    const std::string& how) {
  context.print_label(verb, workspace + how + "; previous state: moorage snapshots " + workspace);
}

void restore(Context& context, const Wanted& wanted) {
  JsonObject body;
  body.add("snapshot", wanted.snapshot);
  if (wanted.kill) body.add("kill", true);
  if (post(context, wanted, "/restore", body))
    print_replaced(context, "restored", wanted.workspace, "   as of " + wanted.snapshot);
}

void undo(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (!wanted.snapshot.empty()) body.add("exec", wanted.snapshot);
  if (wanted.kill) body.add("kill", true);
  if (const auto undone = post(context, wanted, "/undo", body))
    print_replaced(context, "undone", wanted.workspace, "   as of " + undone->text("stands_on"));
}

void fork(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (!wanted.snapshot.empty()) body.add("snapshot", wanted.snapshot);
  std::vector<std::string> names = wanted.names;
  names.insert(names.end(), wanted.more_names.begin(), wanted.more_names.end());
  if (!names.empty()) body.add("names", names);
  if (!wanted.count.empty()) {
    if (!names.empty())
      throw Error(Code::invalid_argument, "--count and names of forks exclude each other");
    body.add("count", parse_count(wanted.count, "--count"));
  }
  const auto forked = post(context, wanted, "/fork", body);
  if (!forked) return;
  for (const Json& made : forked->items("workspaces")) {
    context.print_label("forked", made.text("name") + "   of " + wanted.workspace + ", at " +
                                      made.text("forked_from"));
  }
}

void promote(Context& context, const Wanted& wanted) {
  JsonObject body;
  if (wanted.kill) body.add("kill", true);
  if (const auto promoted = post(context, wanted, "/promote", body))
    print_replaced(context, "promoted", promoted->text("name"),
                   " now has the contents of " + wanted.workspace);
}

void drop(Context& context, const Wanted& wanted) {
  context.api().send("DELETE", context.workspace_path(wanted.workspace, "/snapshots/") +
                                   percent_encode(wanted.snapshot));
  if (context.json) return context.print_json(JsonObject().add("dropped", wanted.snapshot));
  context.print_label("dropped", wanted.snapshot + "   forks and later snapshots are unaffected");
}

void draw_tree(Context& context, const std::string& workspace) {
  const auto tree =
      context.parse_or_print(context.api().get(context.workspace_path(workspace, "/tree")));
  if (!tree) return;
  for (const auto& line : draw_lineage(*tree)) context.print(line + "\n");
}

std::shared_ptr<Wanted> declare_name(Options& options) {
  auto wanted = std::make_shared<Wanted>();
  options.argument({"NAME", "", "The workspace"}, wanted->workspace);
  return wanted;
}

}  // namespace

Action snapshot_command(Options& options) {
  auto wanted = declare_name(options);
  options.optional_argument({"LABEL", "", "Name of the snapshot"}, wanted->snapshot);
  options.value({"--name", "LABEL", "The same as LABEL"}, wanted->name);
  options.value({"--external-id", "ID", "Its id in another program, such as a checkpoint"},
                wanted->external_id);
  return run_with(wanted, take);
}

Action fork_command(Options& options) {
  auto wanted = declare_name(options);
  options.arguments({"FORK", "", "Names of the forks; default: NAME-1, NAME-2..."}, wanted->names);
  options.values({"--name", "FORK", "The same as FORK; may be repeated"}, wanted->more_names);
  options.value({"--count", "N", "Number of forks; default: 1"}, wanted->count);
  options.value({"--at", "SNAPSHOT", "Fork this snapshot; default: the current state"},
                wanted->snapshot);
  return run_with(wanted, fork);
}

Action snapshots_command(Options& options) { return run_with_workspace(options, list); }
Action tree_command(Options& options) { return run_with_workspace(options, draw_tree); }

Action promote_command(Options& options) {
  auto wanted = std::make_shared<Wanted>();
  options.argument({"FORK", "NAME", "The fork"}, wanted->workspace);
  options.flag({"--kill", "", "End the commands that run in its parent"}, wanted->kill);
  return run_with(wanted, promote);
}

Action drop_command(Options& options) {
  auto wanted = declare_name(options);
  options.argument({"SNAPSHOT", "", "Id or name of the snapshot"}, wanted->snapshot);
  return run_with(wanted, drop);
}

Action restore_command(Options& options) {
  auto wanted = declare_name(options);
  options.argument({"SNAPSHOT", "", "Id or name of the snapshot"}, wanted->snapshot);
  options.flag({"--kill", "", "End the commands that run in the workspace"}, wanted->kill);
  return run_with(wanted, restore);
}

Action undo_command(Options& options) {
  auto wanted = declare_name(options);
  options.optional_argument({"EXEC", "", "The command; default: the last one not undone"},
                            wanted->snapshot);
  options.flag({"--kill", "", "End the commands that run in the workspace"}, wanted->kill);
  return run_with(wanted, undo);
}

}  // namespace moorage::cli
