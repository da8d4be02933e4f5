// `approvals`, `approve`, `refuse`: pushes that wait until somebody allows them.
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

constexpr size_t kShortId = 8;

struct ListOptions {
  std::string workspace;
  bool all = false;

  void declare(Options& options) {
    options.optional_argument({"NAME", "", "Only of this workspace"}, workspace);
    options.flag({"--all", "", "With NAME: used, refused and expired ones, too"}, all);
  }
};

bool is_new(const Json& approval) {
  return approval.text("old").find_first_not_of('0') == std::string::npos;
}

std::string change_of(const Json& approval) {
  const std::string to = approval.text("new").substr(0, kShortId);
  return is_new(approval) ? "new, " + to : approval.text("old").substr(0, kShortId) + " -> " + to;
}

void list(Context& context, const ListOptions& options) {
  if (options.all && options.workspace.empty())
    throw Error(Code::invalid_argument, "--all needs a workspace", "moorage approvals NAME --all");
  std::string query;
  if (!options.workspace.empty()) {
    query = "?workspace=" + percent_encode(options.workspace);
    if (options.all) query += "&all=1";
  }
  const auto answer = context.parse_or_print(context.api().get("/v1/approvals" + query));
  if (!answer) return;
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({"ID", "WORKSPACE", shrinks("REPOSITORY"), "REF", "CHANGE", right("COMMITS"), "AGE",
               "STATE", shrinks("TITLE")});
  for (const Json& row : answer->items("approvals")) {
    const int64_t age = age_of(row, "asked_at", now_ms);
    table.add({row.text("id"), row.text("workspace"), row.text("repository"), row.text("ref"),
               change_of(row), row.has("commits") ? std::to_string(row.number("commits")) : "-",
               age < 0 ? "?" : format_age(age), row.text("state"), printable(row.text("title"))});
  }
  table.empty() ? context.print("No pushes wait.\n") : context.print_table(table);
}

struct DecideOptions {
  std::string id;
  void declare(Options& options) { options.argument({"ID", "", "The approval, like ap_3"}, id); }
};

void decide(Context& context, const std::string& id, const char* verb) {
  const auto row = context.parse_or_print(
      context.api().send("POST", "/v1/approvals/" + percent_encode(id) + "/" + verb, "{}"));
  if (!row) return;
  context.print_label(row->text("state"),
                      row->text("ref") + " " + change_of(*row) + " of " + row->text("repository"));
  if (row->text("state") == "approved")
    context.print_label("", "the same push from " + row->text("workspace") + " now passes, once");
}

void approve(Context& context, const DecideOptions& options) {
  decide(context, options.id, "approve");
}
void refuse(Context& context, const DecideOptions& options) {
  decide(context, options.id, "refuse");
}

}  // namespace

Action approvals_command(Options& options) { return run_with<ListOptions>(options, list); }
Action approve_command(Options& options) { return run_with<DecideOptions>(options, approve); }
Action refuse_command(Options& options) { return run_with<DecideOptions>(options, refuse); }

}  // namespace moorage::cli
