#include "cli/report/commands.h"

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "cli/client/context.h"
#include "cli/client/json_items.h"
#include "cli/views/exec_result.h"

namespace moorage::cli {
namespace {

constexpr size_t kCommandCharacters = 400;
constexpr size_t kTableCharacters = 120;
constexpr uint64_t kMostLookedAt = 50'000;

std::string took(const Json& exec) {
  const auto started = parse_utc(exec.text("started_at"));
  if (!started) return "";
  const auto ended = parse_utc(exec.text("ended_at"));
  if (!ended) return format_age(base::system_clock().wall_ms() - *started) + " so far";
  return format_took(std::max<int64_t>(0, *ended - *started));
}

CommandRow row_of(const Json& exec) {
  CommandRow row;
  row.id = exec.text("id");
  row.started = report_time(exec.text("started_at"));
  row.took = took(exec);
  row.command = shorten(join_command(exec.byte_list("argv")), kCommandCharacters);
  row.result = end_text(exec);
  row.running = !has_ended(exec);
  row.failed = !row.running && exit_code_of(exec) != 0;
  const auto next = [&row] { return std::string(row.remark.empty() ? "" : ", "); };
  if (exec.has("hook")) row.remark.say("pre_stop script");
  if (exec.text("user") == "root") row.remark.say(next() + "as root");
  if (exec.has("imported_from")) {
    row.remark.say(next() + "ran as ").quote(exec.text("imported_from"));
    row.remark.say(" before the import");
  }
  if (exec.has("changed_files")) row.changed = count_of(exec.number("changed_files"), "file");
  row.output_bytes = static_cast<uint64_t>(std::max<int64_t>(0, exec.number("output_bytes")));
  if (!row.running) row.notices = end_notices(exec, Reading::its_logs);
  return row;
}

Text command_text(const CommandRow& row, size_t characters) {
  Text text = quoted(shorten(row.command, characters));
  if (!row.remark.empty()) text.say(" (").append(row.remark).say(")");
  return text;
}

// The first line of a tail is usually incomplete: leave it out unless it is the only one.
std::string_view whole_lines(std::string_view tail, bool cut) {
  if (!cut) return tail;
  const size_t end = tail.find('\n');
  return end == std::string_view::npos || end + 1 == tail.size() ? tail : tail.substr(end + 1);
}

void write_output(Context& context, ReportWriter& writer, const CommandRow& row, bool open,
                  uint64_t tail_bytes) {
  std::string tail, trouble, gaps;
  try {
    const std::string rest = "/output?raw=1&tail_bytes=" + std::to_string(tail_bytes);
    const HttpResponse answer =
        context.api().download(context.exec_path(row.id, rest), [&](std::string_view bytes) {
          if (tail.size() < tail_bytes) tail += bytes.substr(0, tail_bytes - tail.size());
        });
    gaps = answer.header("Moorage-Output-Gaps");
  } catch (const Error& error) {
    if (error.code() == Code::unavailable || error.code() == Code::unknown_outcome) throw;
    trouble = error.message();
  }
  Text summary;
  summary.quote(row.id).say(" ").quote(shorten(row.command, kTableCharacters));
  summary.say(": " + row.result);
  writer.begin_fold(summary, open);
  for (const std::string& notice : row.notices) writer.paragraph(quoted(notice));
  if (!trouble.empty()) writer.note(Text("Its output is not available: ").quote(trouble));
  const bool cut = row.output_bytes > tail.size();
  const std::string shown = without_colours(whole_lines(tail, cut));
  if (!shown.empty()) writer.block(Block::output, shown);
  if (!gaps.empty()) writer.note(Text("Some of its output was dropped: bytes ").quote(gaps));
  if (trouble.empty() && shown.empty() && gaps.empty()) writer.paragraph("No output.");
  if (cut && !shown.empty()) {
    writer.paragraph(
        Text("This is the end of " + report_size(row.output_bytes) + " of output; see all: ")
            .quote("moorage logs " + row.id));
  }
  writer.end_fold();
}

}  // namespace

std::string report_time(const std::string& utc) {
  if (!parse_utc(utc) || utc.size() < 19) return utc;
  return utc.substr(0, 10) + " " + utc.substr(11, 8);
}

std::string report_size(uint64_t bytes) {
  if (bytes == 0) return "none";
  return bytes < 1024 ? count_of(static_cast<int64_t>(bytes), "byte") : format_size(bytes);
}

std::string without_colours(std::string_view output) {
  std::string out;
  while (!output.empty()) {
    if (output.starts_with("\r\n")) output.remove_prefix(1);
    if (output.starts_with("\x1b[")) {
      const size_t end = output.find_first_not_of("0123456789;", 2);
      if (end != std::string_view::npos && (output[end] == 'm' || output[end] == 'K')) {
        output.remove_prefix(end + 1);
        continue;
      }
    }
    out += output.front();
    output.remove_prefix(1);
  }
  return out;
}

CommandList list_commands(Context& context, const std::string& workspace, size_t most_rows) {
  CommandList list;
  std::string before;
  do {
    // 100 at a time: each may have 100 KB of arguments.
    const std::string rest = "/history?limit=100" + (before.empty() ? "" : "&before=" + before);
    std::vector<CommandRow> page;
    JsonItems items([&](const Json& exec) { page.push_back(row_of(exec)); });
    context.api().download(context.workspace_path(workspace, rest),
                           [&](std::string_view bytes) { items.feed(bytes); });
    list.older = items.finish().flag("truncated") && !page.empty();
    if (list.older && page.front().id == before) break;
    if (!page.empty()) before = page.front().id;
    for (auto row = page.rbegin(); row != page.rend(); ++row) {
      ++list.ran;
      list.failed += row->failed ? 1 : 0;
      list.running += row->running ? 1 : 0;
      if (list.rows.size() < most_rows) list.rows.push_back(std::move(*row));
    }
  } while (list.older && list.ran < kMostLookedAt);
  return list;
}

void write_commands(ReportWriter& writer, const CommandList& list, const std::string& workspace) {
  if (list.rows.empty()) return writer.paragraph("No commands yet.");
  const uint64_t left_out = list.ran - list.rows.size();
  if (left_out > 0 || list.older) {
    writer.note(Text("Only the last " +
                     count_of(static_cast<int64_t>(list.rows.size()), "command") + " of " +
                     (list.older ? "more than " : "") + std::to_string(list.ran) +
                     " are listed; --full lists up to 10,000, and ")
                    .quote("moorage history " + workspace)
                    .say(" shows the others."));
  }
  writer.begin_table({{"Id"},
                      {"Started, UTC"},
                      {"Took", true},
                      {"Command"},
                      {"Result"},
                      {"Files changed"},
                      {"Output", true}});
  for (auto row = list.rows.rbegin(); row != list.rows.rend(); ++row) {
    const Tone tone = row->failed ? Tone::bad : row->running ? Tone::good : Tone::plain;
    writer.row({quoted(row->id),
                row->started,
                row->took,
                command_text(*row, kTableCharacters),
                {Text(row->result), tone},
                row->changed,
                report_size(row->output_bytes)});
  }
  writer.end_table();
}

void write_outputs(Context& context, ReportWriter& writer, const CommandList& list,
                   const OutputLimits& limits) {
  std::set<size_t> chosen;
  size_t failed = 0;
  for (size_t n = 0; n < list.rows.size(); ++n) {
    const bool shown = list.rows[n].failed && failed < limits.failed;
    failed += list.rows[n].failed ? 1 : 0;
    if (shown || n < limits.last) chosen.insert(n);
  }
  if (chosen.empty()) return;
  writer.heading("Output");
  writer.paragraph("The last output of failed commands and of the latest commands.");
  if (failed > limits.failed) {
    writer.note("Only the last " + std::to_string(limits.failed) + " of " + std::to_string(failed) +
                " failed commands are shown.");
  }
  for (auto n = chosen.rbegin(); n != chosen.rend(); ++n) {
    const CommandRow& row = list.rows[*n];
    write_output(context, writer, row, row.failed && chosen.size() <= 4, limits.tail_bytes);
  }
}

}  // namespace moorage::cli
