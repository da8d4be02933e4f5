#include "cli/report/changes.h"

#include <charconv>

#include "base/clock.h"
#include "base/size_text.h"
#include "cli/client/context.h"
#include "cli/client/json_items.h"
#include "cli/report/commands.h"

namespace moorage::cli {
namespace {

constexpr size_t kHeadLogBytes = 256 << 10;
constexpr uint64_t kMostHeadLogBytes = 16 << 20;  // commands in the workspace could make it endless

struct TooLong {};

std::string hex_word(std::string_view text) {
  const bool hex =
      text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return hex ? std::string(text) : "";
}

std::string signed_count(char sign, int64_t count) {
  return count == 0 ? "" : sign + std::to_string(count);
}

// "Name <mail> 1732386903 +0100" -> the name, and the time.
void read_who(std::string_view text, HeadMove& move) {
  const size_t mail = text.rfind(" <"), end = text.rfind("> ");
  if (mail == std::string_view::npos || end == std::string_view::npos || end < mail) return;
  move.who = shorten(std::string(text.substr(0, mail)), 60);
  const std::string_view time = text.substr(end + 2);
  int64_t seconds = 0;
  const auto parsed = std::from_chars(time.data(), time.data() + time.size(), seconds);
  constexpr int64_t kYear10000 = 253'402'300'800;
  if (parsed.ec == std::errc() && seconds > 0 && seconds < kYear10000)
    move.when = report_time(base::format_utc(seconds * 1000));
}

}  // namespace

ChangedFiles list_changes(Context& context, const std::string& workspace, size_t most_rows) {
  ChangedFiles changes;
  JsonItems items([&](const Json& file) {
    ChangedFile row{file.bytes("path"), file.text("change"), file.number("added"),
                    file.number("removed"), file.flag("binary")};
    if (file.has("left_out")) row.change += ", not in a patch";
    ++changes.files;
    changes.added += row.added;
    changes.removed += row.removed;
    if (changes.rows.size() < most_rows) changes.rows.push_back(std::move(row));
  });
  context.api().download(context.workspace_path(workspace, "/diff?stat=1"),
                         [&](std::string_view bytes) { items.feed(bytes); });
  return changes;
}

void write_changes(ReportWriter& writer, const ChangedFiles& changes, const std::string& workspace,
                   bool has_work) {
  const std::string base =
      has_work ? "the base, which has its owner's uncommitted work" : "the base commit";
  if (changes.files == 0) return writer.paragraph("Nothing differs from " + base + ".");
  writer.paragraph(count_of(changes.files, "file") + " " +
                   base::verb_text(static_cast<uint64_t>(changes.files), "differ") + " from " +
                   base + ": +" + std::to_string(changes.added) + " and -" +
                   std::to_string(changes.removed) + " lines, committed and uncommitted together.");
  if (static_cast<size_t>(changes.files) > changes.rows.size()) {
    writer.note(
        Text("Only the first " + std::to_string(changes.rows.size()) + " are listed; see all: ")
            .quote("moorage diff " + workspace + " --stat"));
  }
  writer.begin_table({{"File"}, {"Change"}, {"Added", true}, {"Removed", true}});
  for (const ChangedFile& file : changes.rows) {
    const std::string change = file.binary ? file.change + ", binary" : file.change;
    writer.row({quoted(shorten(file.path, 300)), change,
                file.binary ? "" : signed_count('+', file.added),
                file.binary ? "" : signed_count('-', file.removed)});
  }
  writer.end_table();
}

NestedRepositories list_nested(Context& context, const std::string& workspace) {
  constexpr size_t kNames = 20;
  NestedRepositories nested;
  JsonItems items([&](const Json& file) {
    std::string path = file.bytes("path");
    if (!path.ends_with('/')) return;
    ++nested.count;
    if (nested.names.size() < kNames) nested.names.push_back(shorten(path, 200));
  });
  context.api().download(context.workspace_path(workspace, "/status"),
                         [&](std::string_view bytes) { items.feed(bytes); });
  nested.truncated = items.finish().flag("truncated");
  return nested;
}

std::vector<HeadMove> read_head_log(std::string_view log) {
  std::vector<HeadMove> moves;
  while (!log.empty()) {
    const size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
    const size_t tab = line.find('\t');
    if (line.size() < 82 || line[40] != ' ' || line[81] != ' ' || tab == std::string_view::npos)
      continue;
    HeadMove move;
    move.commit = hex_word(line.substr(41, 40));
    if (move.commit.empty() || hex_word(line.substr(0, 40)).empty() || tab < 82) continue;
    read_who(line.substr(82, tab - 82), move);
    move.what = shorten(std::string(line.substr(tab + 1)), 200);
    moves.push_back(std::move(move));
  }
  return moves;
}

void write_commits(Context& context, ReportWriter& writer, const std::string& workspace,
                   size_t most_rows) {
  std::string log;
  uint64_t size = 0;
  try {
    const std::string target = "/file?path=" + percent_encode("/workspace/.git/logs/HEAD");
    context.api().download(context.workspace_path(workspace, target), [&](std::string_view bytes) {
      log += bytes;
      size += bytes.size();
      if (size > kMostHeadLogBytes) throw TooLong{};
      if (log.size() > 2 * kHeadLogBytes) log.erase(0, log.size() - kHeadLogBytes);
    });
  } catch (const TooLong&) {
    return writer.note(Text("git's log of HEAD is too long to read here: ")
                           .quote("moorage exec " + workspace + " -- git reflog"));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
  const std::vector<HeadMove> moves = read_head_log(log);
  if (moves.empty()) return writer.paragraph("None: git's log of HEAD is empty.");
  writer.paragraph(
      "The moves of HEAD, from git's log in the workspace, which commands there could change.");
  const size_t first = moves.size() > most_rows ? moves.size() - most_rows : 0;
  if (first > 0 || size > log.size()) {
    writer.note(Text("Only the last " + std::to_string(moves.size() - first) + ". See all: ")
                    .quote("moorage exec " + workspace + " -- git reflog"));
  }
  writer.begin_table({{"When, UTC"}, {"Commit"}, {"What"}, {"Author, unverified"}});
  for (size_t n = first; n < moves.size(); ++n) {
    const HeadMove& move = moves[n];
    writer.row({move.when, quoted(move.commit.substr(0, 12)), quoted(move.what), quoted(move.who)});
  }
  writer.end_table();
}

}  // namespace moorage::cli
