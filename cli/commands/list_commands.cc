// `ls` and `lease ls`: one line for each workspace, from the daemon's records; nothing walks a
// tree.
#include <algorithm>

#include "base/clock.h"
#include "cli/client/workspace_pages.h"
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

constexpr size_t kReasonColumns = 60;

// `typed` is what a person types for it: its name, or its id.
std::vector<Cell> row_of(const Json& workspace, const std::string& typed, int64_t now_ms) {
  const std::string name = workspace.text("name");
  std::vector<Cell> row{typed == name ? name : typed + " (" + name + ")", owner_text(workspace),
                        workspace.text("repo.name", "-"), base_text(workspace),
                        state_cell(workspace, now_ms)};
  if (needs_check(workspace)) {
    const std::string why =
        workspace.text("integrity.reason", workspace.text("reason", "changed outside Moorage"));
    row.emplace_back(shorten(why, kReasonColumns) + ": moorage show " + typed);
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

struct LsOptions {
  bool deleted = false;
  bool all = false;
  std::vector<std::string> labels;

  void declare(Options& options) {
    options.flag({"-a,--all", "", "Deleted and failed ones, too"}, all);
    options.flag({"--deleted", "", "Deleted workspaces that undelete can restore"}, deleted);
    options.without_effect("-l");  // the list is long
    options.values({"--label", "K=V", "Only those with this label; K alone: any value"}, labels);
  }
};

bool has_label(const Json& workspace, const std::string& wanted) {
  const size_t equals = wanted.find('=');
  const auto labels = workspace.members("labels");
  return std::any_of(labels.begin(), labels.end(), [&](const auto& label) {
    if (label.first != wanted.substr(0, equals)) return false;
    return equals == std::string::npos || label.second == wanted.substr(equals + 1);
  });
}

void keep_wanted(const LsOptions& options, std::vector<Json>& workspaces) {
  for (const std::string& label : options.labels) {
    if (label.empty() || label.front() == '=')
      throw Error(Code::invalid_argument, "--label: '" + label + "' is not K=V");
  }
  std::erase_if(workspaces, [&](const Json& workspace) {
    if (options.deleted && !options.all && workspace.text("state") != "deleted") return true;
    return !std::all_of(options.labels.begin(), options.labels.end(),
                        [&](const std::string& label) { return has_label(workspace, label); });
  });
}

// Deleted workspaces may share a name: show the id and the time.
void print_deleted(Context& context, const std::vector<Json>& deleted) {
  if (deleted.empty()) return context.print("no deleted workspaces\n");
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table(
      {"ID", shrinks("NAME"), shrinks("REPO"), shrinks("BASE"), "DELETED", "CHANGES", "OWNER"});
  for (const Json& workspace : deleted) {
    const int64_t age = age_of(workspace, "deleted_at", now_ms);
    table.add({workspace.text("id"), workspace.text("name"), workspace.text("repo.name", "-"),
               base_text(workspace), age < 0 ? "-" : format_age(age) + " ago",
               changes_text(workspace), owner_text(workspace)});
  }
  context.print_table(table);
  context.print("restore one: moorage undelete ID\n");
}

void list(Context& context, const LsOptions& options) {
  WorkspaceList list = all_workspaces(context, options.deleted || options.all);
  std::vector<Json>& workspaces = list.workspaces;
  const TypedNames typed(workspaces);
  const bool is_narrowed = options.deleted || !options.labels.empty();
  if (is_narrowed) {
    keep_wanted(options, workspaces);
    list.answer.clear();
  }
  if (context.json) return context.print_json(list.json());
  if (options.deleted && !options.all) return print_deleted(context, workspaces);
  const bool rescue = list.first.has("rescue");
  if (workspaces.empty() && !rescue) {
    return context.print(is_narrowed
                             ? "no workspaces with that label\n"
                             : "no workspaces yet; create one:\n  moorage create --repo URL\n");
  }
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({shrinks("NAME"), "OWNER", shrinks("REPO"), shrinks("BASE"), "STATE",
               shrinks("DOING"), "CHANGES", right("DISK"), "HOLDER"});
  for (const Json& workspace : workspaces)
    table.add(row_of(workspace, typed.of(workspace), now_ms));
  context.print_table(table);
  context.print(footer(workspaces.size(), list.first.at("store")));
  if (rescue) {
    context.print(printable(list.first.text("rescue")) +
                  "\nsave one: moorage rescue export NAME FILE\nnext:     moorage doctor\n");
  }
}

void list_leases(Context& context) {
  std::vector<Json> held;
  for (const Json& workspace : all_workspaces(context).workspaces) {
    if (workspace.has("holder")) held.push_back(workspace);
  }
  if (context.json) return context.print_json(JsonObject().add("workspaces", held));
  if (held.empty()) return context.print("no workspace is held\n");
  Table table({shrinks("NAME"), "OWNER", "LEASE", shrinks("HOLDER"), "SEEN"});
  for (const Json& workspace : held) {
    const Json holder = workspace.at("holder");
    table.add({workspace.text("name"), owner_text(workspace), holder.text("generation"),
               holder_text(holder), format_age(holder.number("seen_ms_ago")) + " ago"});
  }
  context.print_table(table);
}

}  // namespace

void list_workspaces(Context& context) { list(context, {}); }

Action ls_command(Options& options) { return run_with<LsOptions>(options, list); }

Action lease_ls_command(Options&) {
  return [](Context& context) {
    list_leases(context);
    return 0;
  };
}

}  // namespace moorage::cli
