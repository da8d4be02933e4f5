// `gc`: shows reclaimable space and why, or reclaims it; `pin` and `unpin` protect a workspace.
#include "base/error.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct GcOptions {
  bool explain = false;
  bool run = false;
  std::string until_free;
};

std::string rung_text(const std::string& rung) { return rung == "base_tree" ? "base tree" : rung; }

Table gc_table(const std::vector<Json>& rows, bool done) {
  Table table({{"WHAT"}, {"NAME", false, true}, {"SIZE", true}, {""}, {"WHY", false, true}});
  for (const Json& row : rows) {
    const bool goes = row.flag("goes");
    const std::string verdict = goes ? (done ? "reclaimed" : "reclaimable") : "kept";
    const bool known = row.has("bytes");
    table.add({rung_text(row.text("rung")),
               row.text("subject"),
               known ? format_size(static_cast<uint64_t>(row.number("bytes"))) : "-",
               {verdict, goes ? Colour::green : Colour::dim},
               row.text("why")});
  }
  return table;
}

void print_sum(Context& context, const Json& answer, const std::string& what) {
  const auto size = [&answer](const char* field) {
    return format_size(static_cast<uint64_t>(answer.number(field)));
  };
  context.print("\n" + size("bytes") + " " + what + "; " + size("space.free_bytes") +
                " of the disk free, " + size("space.kept_free_bytes") + " reserved\n");
}

int explain(Context& context) {
  const std::string text = context.api().get("/v1/gc");
  if (context.printed_json(text)) return 0;
  const Json answer = Json::parse(text);
  const auto rows = answer.items("rows");
  if (!rows.empty()) context.print_table(gc_table(rows, false));
  if (!answer.flag("complete"))
    context.note("listing only the first of " + std::to_string(answer.number("kept")) +
                 " kept items");
  print_sum(context, answer, "reclaimable: sudo moorage gc --run");
  return 0;
}

int run(Context& context, const GcOptions& options) {
  JsonObject request;
  if (!options.until_free.empty()) {
    request.add("until_free_bytes",
                static_cast<int64_t>(parse_size(options.until_free, "--until-free")));
  }
  const std::string text = context.api().send("POST", "/v1/gc", request.str());
  if (context.printed_json(text)) return 0;
  const Json answer = Json::parse(text);
  const auto rows = answer.items("rows");
  if (!rows.empty()) context.print_table(gc_table(rows, true));
  print_sum(context, answer, "gone");
  if (answer.flag("enough")) return 0;
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
  return options.run ? run(context, options) : explain(context);
}

Action with_name(Options& options, bool pinned) {
  auto name = std::make_shared<std::string>();
  options.argument({"NAME", "", "The workspace"}, *name);
  return [name, pinned](Context& context) {
    const std::string answer = context.api().send("PATCH", context.workspace_path(*name),
                                                  JsonObject().add("pinned", pinned).str());
    if (context.printed_json(answer)) return 0;
    context.print(label_line(pinned ? "pinned" : "unpinned", Json::parse(answer).text("name")));
    return 0;
  };
}

}  // namespace

Action gc_command(Options& options) {
  auto chosen = std::make_shared<GcOptions>();
  options.flag({"--explain", "", "Show reclaimable space and why (default)"}, chosen->explain);
  options.flag({"--run", "", "Reclaim it"}, chosen->run);
  options.value({"--until-free", "SIZE", "Stop when this much of the disk is free, like 20G"},
                chosen->until_free);
  return [chosen](Context& context) { return collect(context, *chosen); };
}

Action pin_command(Options& options) { return with_name(options, true); }
Action unpin_command(Options& options) { return with_name(options, false); }

}  // namespace moorage::cli
