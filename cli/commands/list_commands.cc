// `ls`: one line for each workspace, from the daemon's records; nothing walks a tree.
#include "base/clock.h"
#include "cli/client/workspace_pages.h"
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

constexpr size_t kReasonColumns = 60;

std::vector<Cell> row_of(const Json& workspace, int64_t now_ms) {
  // Root sees all workspaces. Names of different owners may collide; ids never do.
  const std::string owner = person_text(workspace.at("owner"));
  const bool ours = owner == "you" || owner == "-";
  const std::string name = workspace.text(ours ? "name" : "id");
  std::vector<Cell> row{ours ? name : name + " (" + owner + ": " + workspace.text("name") + ")",
                        workspace.text("repo.name", "-"), base_text(workspace),
                        state_cell(workspace, now_ms)};
  if (needs_check(workspace)) {
    const std::string why =
        workspace.text("integrity.reason", workspace.text("reason", "changed outside Moorage"));
    row.emplace_back(shorten(why, kReasonColumns) + ": moorage show " + name);
    return row;
  }
  if (workspace.text("state") == "failed" && workspace.has("reason")) {
    row.emplace_back(workspace.text("reason"));
    return row;
  }
  row.emplace_back(doing_text(workspace, now_ms));
  row.emplace_back(changes_text(workspace));
  row.emplace_back(size_or_dash(workspace, "disk_bytes"));
  row.emplace_back(holder_text(workspace.at("holder")));
  return row;
}

std::string footer(size_t workspaces, const Json& store) {
  std::string text = count_of(static_cast<int64_t>(workspaces), "workspace");
  if (store.number("total_bytes") > 0) {
    text += " | " + size_text(store, "used_bytes") + " of " + size_text(store, "total_bytes") +
            ", " + size_text(store, "free_bytes") + " free";
  }
  return text + "\n";
}

// Deleted workspaces may share a name: show the id and the time.
void list_deleted(Context& context) {
  std::vector<Json> deleted;
  for (const Json& workspace : all_workspaces(context, true).workspaces) {  // includes live ones
    if (workspace.text("state") == "deleted") deleted.push_back(workspace);
  }
  if (context.json) return context.print_json(JsonObject().add("workspaces", deleted));
  if (deleted.empty()) return context.print("no deleted workspaces\n");
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table(
      {"ID", shrinks("NAME"), shrinks("REPO"), shrinks("BASE"), "DELETED", "CHANGES", "OWNER"});
  for (const Json& workspace : deleted) {
    const int64_t age = age_of(workspace, "deleted_at", now_ms);
    table.add({workspace.text("id"), workspace.text("name"), workspace.text("repo.name", "-"),
               base_text(workspace), age < 0 ? "-" : format_age(age) + " ago",
               changes_text(workspace), person_text(workspace.at("owner"))});
  }
  context.print_table(table);
  context.print("restore one: moorage undelete ID\n");
}

void list_workspaces(Context& context, bool only_deleted) {
  if (only_deleted) return list_deleted(context);
  const WorkspaceList list = all_workspaces(context);
  if (context.json) return context.print_json(list.json());
  const std::vector<Json>& workspaces = list.workspaces;
  const bool rescue = list.first.has("rescue");
  if (workspaces.empty() && !rescue)
    return context.print("no workspaces yet; create one:\n  moorage create --repo URL\n");
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({shrinks("NAME"), shrinks("REPO"), shrinks("BASE"), "STATE", shrinks("DOING"),
               "CHANGES", right("DISK"), "HOLDER"});
  for (const Json& workspace : workspaces) table.add(row_of(workspace, now_ms));
  context.print_table(table);
  context.print(footer(workspaces.size(), list.first.at("store")));
  if (rescue) {
    context.print(printable(list.first.text("rescue")) +
                  "\nsave one: moorage rescue export NAME FILE\nnext:     moorage doctor\n");
  }
}

}  // namespace

Action ls_command(Options& options) {
  auto deleted = std::make_shared<bool>();
  options.flag({"--deleted", "", "Deleted workspaces that undelete can restore"}, *deleted);
  return run_with(deleted, list_workspaces);
}

}  // namespace moorage::cli
