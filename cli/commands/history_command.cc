// `history`: the commands of a workspace, one line each, the newest last.
#include <algorithm>
#include <charconv>

#include "base/clock.h"
#include "base/error.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"
#include "cli/views/exec_result.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

struct HistoryOptions {
  std::string workspace;
  std::string limit;
};

void check_limit(const std::string& text) {
  int limit = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, limit);
  if (parsed.ec != std::errc() || parsed.ptr != end || limit < 1 || limit > 1000)
    throw Error(Code::invalid_argument, "--limit takes 1 to 1000, not '" + text + "'");
}

// "0", "127 not_found", "signal 9", "timeout", "running".
Cell exit_cell(const Json& exec) {
  const std::string state = exec.text("state"), category = category_text(exec);
  if (!has_ended(exec)) return {state, Colour::green};
  std::string text = category.empty() ? state : category;
  if (state == "exited")
    text = exec.text("exit_code", "0") + (category.empty() ? "" : " " + category);
  if (state == "signalled")
    text = "signal " + exec.text("signal") + (category == "signal" ? "" : " " + category);
  return {text, exit_code_of(exec) == 0 ? Colour::plain : Colour::red};
}

std::string took_text(const Json& exec, int64_t now_ms) {
  const auto started = parse_utc(exec.text("started_at"));
  if (!started) return "-";
  const int64_t ended = parse_utc(exec.text("ended_at")).value_or(now_ms);
  return format_took(std::max<int64_t>(0, ended - *started));
}

int print_history(Context& context, const HistoryOptions& options) {
  std::string rest = "/history";
  if (!options.limit.empty()) {
    check_limit(options.limit);
    rest += "?limit=" + options.limit;
  }
  const std::string answer = context.api().get(context.workspace_path(options.workspace, rest));
  if (context.printed_json(answer)) return 0;
  const Json history = Json::parse(answer);
  const std::vector<Json> execs = history.items("execs");
  if (execs.empty()) {
    context.print("no commands yet\n");
    return 0;
  }
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({{"EXEC"},
               {"STARTED", true},
               {"TOOK", true},
               {"BY"},
               {"EXIT"},
               {"CHANGED", true},
               {"OUTPUT", true},
               {"COMMAND", false, true}});
  for (const Json& exec : execs) {
    const int64_t age = age_of(exec, "started_at", now_ms);
    table.add({exec.text("id"), age < 0 ? "-" : format_age(age) + " ago", took_text(exec, now_ms),
               exec.text("hook", person_text(exec.at("owner"))), exit_cell(exec),
               exec.has("changed_files") ? count_of(exec.number("changed_files"), "file") : "-",
               format_size(static_cast<uint64_t>(exec.number("output_bytes"))),
               join_command(exec.byte_list("argv"))});
  }
  context.print_table(table);
  if (history.flag("truncated"))
    context.note("showing the last " + std::to_string(execs.size()) + "; more: -n 1000");
  if (history.text("workspace.state") == "deleted")
    context.note("the workspace is deleted; restore it: moorage undelete " +
                 history.text("workspace.id"));
  return 0;
}

}  // namespace

Action history_command(Options& options) {
  auto history = std::make_shared<HistoryOptions>();
  options.argument({"NAME", "", "The workspace"}, history->workspace);
  options.value({"-n,--limit", "N", "Show the last N commands; default: 100"}, history->limit);
  return [history](Context& context) { return print_history(context, *history); };
}

}  // namespace moorage::cli
