// `du`: disk use by workspace, and for root of the whole store. `gc`: shows reclaimable space and
// why, or reclaims it; `pin` and `unpin` protect a workspace from it.
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

// "1.2G, shared by 3": the base is stored once for all workspaces on it.
std::string base_cell(const Json& workspace) {
  if (!workspace.has("base.bytes")) return "-";
  const int64_t shared = workspace.number("base.shared_by");
  const std::string by = shared > 1 ? ", shared by " + std::to_string(shared) : "";
  return size_text(workspace, "base.bytes") + by;
}

Table workspace_table(const std::vector<Json>& workspaces) {
  Table table({shrinks("NAME"), "ID", "STATE", right("EDITS"), right("SNAPSHOTS"), right("LOGS"),
               "BASE", "OWNER"});
  for (const Json& workspace : workspaces) {
    const bool whole = workspace.flag("complete");
    const std::string state = workspace.text("state");
    table.add({workspace.text("name"), workspace.text("id"),
               Cell(state, state == "ready" ? Colour::plain : Colour::yellow),
               (whole ? "" : ">") + size_text(workspace, "edits_bytes"),
               size_text(workspace, "snapshot_bytes"), size_text(workspace, "journal_bytes"),
               base_cell(workspace), owner_text(workspace)});
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
  Table table({"PART", right("SIZE"), shrinks("WHAT")});
  for (const auto& [part, about] : kParts) {
    const std::string field = std::string(part) + "_bytes";
    if (store.number(field) == 0) continue;
    std::string name(part);
    if (const size_t line = name.find('_'); line != std::string::npos) name[line] = ' ';
    table.add({Cell(name, part == "lost" ? Colour::red : Colour::plain), size_text(store, field),
               std::string(about)});
  }
  table.add(
      {Cell("total", Colour::bold), Cell(size_text(store, "total_bytes"), Colour::bold),
       size_text(usage, "space.free_bytes") + " free of " + size_text(usage, "space.total_bytes")});
  return table;
}

void print_usage(Context& context, const std::string& name) {
  const std::string target = name.empty() ? "/v1/du" : "/v1/du?workspace=" + percent_encode(name);
  const auto usage = context.parse_or_print(context.api().get(target));
  if (!usage) return;
  const std::vector<Json> workspaces = usage->items("workspaces");
  if (workspaces.empty()) {
    context.print("no workspaces yet\n");
  } else {
    context.print_table(workspace_table(workspaces));
  }
  if (usage->has("store")) {
    context.print("\n");
    context.print_table(store_table(*usage));
  }
  if (usage->number("exports_bytes") > 0)
    context.print("exports not downloaded yet: " + size_text(*usage, "exports_bytes") + "\n");
  if (!usage->flag("complete"))
    context.note("some sizes are stale or too small: measuring timed out");
}

struct GcOptions {
  bool explain = false;
  bool run = false;
  std::string until_free;

  void declare(Options& options) {
    options.flag({"--explain", "", "Show reclaimable space and why (default)", "--dry-run"},
                 explain);
    options.flag({"--run", "", "Reclaim it"}, run);
    options.value({"--until-free", "SIZE", "Stop when this much of the disk is free, like 20G"},
                  until_free);
  }
};

std::string rung_text(const std::string& rung) { return rung == "base_tree" ? "base tree" : rung; }

Table gc_table(const std::vector<Json>& rows, bool done) {
  Table table({"WHAT", shrinks("NAME"), right("SIZE"), "", shrinks("WHY")});
  for (const Json& row : rows) {
    const bool goes = row.flag("goes");
    const std::string verdict = goes ? (done ? "reclaimed" : "reclaimable") : "kept";
    table.add({rung_text(row.text("rung")), row.text("subject"), size_or_dash(row, "bytes"),
               Cell(verdict, goes ? Colour::green : Colour::dim), row.text("why")});
  }
  return table;
}

void print_plan(Context& context, const Json& plan, bool done) {
  const auto rows = plan.items("rows");
  if (!rows.empty()) context.print_table(gc_table(rows, done));
  if (!done && !plan.flag("complete"))
    context.note("listing only the first of " + std::to_string(plan.number("kept")) +
                 " kept items");
  context.print("\n" + size_text(plan, "bytes") +
                (done ? " gone; " : " reclaimable: sudo moorage gc --run; ") +
                size_text(plan, "space.free_bytes") + " of the disk free, " +
                size_text(plan, "space.kept_free_bytes") + " reserved\n");
}

int run(Context& context, const GcOptions& options) {
  JsonObject request;
  if (!options.until_free.empty()) {
    request.add("until_free_bytes",
                static_cast<int64_t>(parse_size(options.until_free, "--until-free")));
  }
  const auto done = context.parse_or_print(context.api().send("POST", "/v1/gc", request.str()));
  if (!done) return 0;
  print_plan(context, *done, true);
  if (done->flag("enough")) return 0;
  context.note("less than requested; see why the rest is kept: moorage gc --explain");
  return 1;
}

int collect(Context& context, const GcOptions& options) {
  if (options.explain && options.run) {
    throw Error(Code::invalid_argument, "--explain and --run exclude each other");
  }
  if (!options.until_free.empty() && !options.run) {
    throw Error(Code::invalid_argument, "--until-free needs --run");
  }
  if (options.run) return run(context, options);
  if (const auto plan = context.parse_or_print(context.api().get("/v1/gc")))
    print_plan(context, *plan, false);
  return 0;
}

template <bool Pinned>
void pin(Context& context, const std::string& name) {
  const auto workspace = context.parse_or_print(context.api().send(
      "PATCH", context.workspace_path(name), JsonObject().add("pinned", Pinned).str()));
  if (workspace) context.print_label(Pinned ? "pinned" : "unpinned", workspace->text("name"));
}

}  // namespace

Action du_command(Options& options) {
  auto name = std::make_shared<std::string>();
  options.optional_argument({"NAME", "", "One workspace; default: all your workspaces"}, *name);
  return run_with(name, print_usage);
}

Action gc_command(Options& options) { return run_with<GcOptions>(options, collect); }
Action pin_command(Options& options) { return run_with_workspace(options, pin<true>); }
Action unpin_command(Options& options) { return run_with_workspace(options, pin<false>); }

}  // namespace moorage::cli
