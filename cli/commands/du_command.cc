// `du`: disk use by workspace, and for root of the whole store.
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

std::string size_text(const Json& json, std::string_view field) {
  return format_size(static_cast<uint64_t>(json.number(field)));
}

// "1.2G, shared by 3": the base is stored once for all workspaces on it.
std::string base_cell(const Json& workspace) {
  if (!workspace.has("base.bytes")) return "-";
  const int64_t shared = workspace.number("base.shared_by");
  const std::string by = shared > 1 ? ", shared by " + std::to_string(shared) : "";
  return size_text(workspace, "base.bytes") + by;
}

Table workspace_table(const std::vector<Json>& workspaces) {
  Table table({{"NAME", false, true},
               {"ID"},
               {"STATE"},
               {"EDITS", true},
               {"SNAPSHOTS", true},
               {"LOGS", true},
               {"BASE"},
               {"OWNER"}});
  for (const Json& workspace : workspaces) {
    const bool whole = workspace.flag("complete");
    const std::string state = workspace.text("state");
    table.add({workspace.text("name"),
               workspace.text("id"),
               {state, state == "ready" ? Colour::plain : Colour::yellow},
               (whole ? "" : ">") + size_text(workspace, "edits_bytes"),
               size_text(workspace, "snapshot_bytes"),
               size_text(workspace, "journal_bytes"),
               base_cell(workspace),
               person_text(workspace.at("owner"))});
  }
  return table;
}

Table store_table(const Json& usage) {
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"edits", "files and homes, also of deleted workspaces that undelete can restore"},
      {"snapshots", "frozen states of workspaces, shared with forks"},
      {"archives", "archived workspaces"},
      {"journals", "output and results of commands"},
      {"base_trees", "checkouts shared by workspaces"},
      {"mirrors", "repositories"},
      {"images", "root file systems of sandboxes"},
      {"sandboxes", "sockets and engine files"},
      {"database", "state.db and its log"},
      {"reserve", "reserved for a full disk"},
      {"lost", "unknown to the database: moorage info"},
      {"other", "uploads, directories"}};
  const Json store = usage.at("store");
  Table table({{"PART"}, {"SIZE", true}, {"WHAT", false, true}});
  for (const auto& [part, about] : kParts) {
    const std::string field = std::string(part) + "_bytes";
    if (store.number(field) == 0) continue;
    std::string name(part);
    if (const size_t line = name.find('_'); line != std::string::npos) name[line] = ' ';
    table.add({{name, part == "lost" ? Colour::red : Colour::plain},
               size_text(store, field),
               std::string(about)});
  }
  table.add(
      {{"total", Colour::bold},
       {size_text(store, "total_bytes"), Colour::bold},
       size_text(usage, "space.free_bytes") + " free of " + size_text(usage, "space.total_bytes")});
  return table;
}

int print_usage(Context& context, const std::string& name) {
  const std::string target = name.empty() ? "/v1/du" : "/v1/du?workspace=" + percent_encode(name);
  const std::string answer = context.api().get(target);
  if (context.printed_json(answer)) return 0;
  const Json usage = Json::parse(answer);
  const std::vector<Json> workspaces = usage.items("workspaces");
  if (workspaces.empty()) {
    context.print("no workspaces yet\n");
  } else {
    context.print_table(workspace_table(workspaces));
  }
  if (usage.has("store")) {
    context.print("\n");
    context.print_table(store_table(usage));
  }
  if (usage.has("exports_bytes") && usage.number("exports_bytes") > 0)
    context.print("exports not downloaded yet: " + size_text(usage, "exports_bytes") + "\n");
  if (!usage.flag("complete"))
    context.note("some sizes are stale or too small: measuring timed out");
  return 0;
}

}  // namespace

Action du_command(Options& options) {
  auto name = std::make_shared<std::string>();
  options.optional_argument({"NAME", "", "One workspace; default: all your workspaces"}, *name);
  return [name](Context& context) { return print_usage(context, *name); };
}

}  // namespace moorage::cli
