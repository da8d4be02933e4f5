#include "cli/report/report.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "cli/client/accounts.h"
#include "cli/client/context.h"
#include "cli/report/changes.h"
#include "cli/views/lineage.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

class Report {
 public:
  Report(Context& context, ReportWriter& writer, std::string name, const ReportLimits& limits)
      : context_(context), writer_(writer), name_(std::move(name)), limits_(limits) {}

  void write() {
    workspace_ = Json::parse(context_.api().get(context_.workspace_path(name_)));
    const auto commands = had([&] { return list_commands(context_, name_, limits_.commands); });
    const auto changes = had([&] { return list_changes(context_, name_, limits_.files); });
    begin(commands.value, changes.value);
    lineage();
    snapshots();
    writer_.heading("Commands");
    if (commands.value) {
      write_commands(writer_, *commands.value, name_);
      write_outputs(context_, writer_, *commands.value, limits_.outputs);
    } else {
      note_trouble(commands.trouble);
    }
    writer_.heading("Changes");
    changes.value ? write_changes(writer_, *changes.value, name_, workspace_.has("base.work"))
                  : note_trouble(changes.trouble);
    if (changes.value && changes.value->files > 0) patch();
    commits();
    missing();
    writer_.end(Text("Written by moorage " MOORAGE_VERSION " at " + now() + " UTC."));
  }

 private:
  template <typename T>
  struct Had {
    std::optional<T> value;
    std::optional<Error> trouble;
  };
  // The report quotes refusals of the daemon; losing the daemon ends the report.
  template <typename Ask>
  auto had(const Ask& ask) -> Had<decltype(ask())> {
    try {
      return {ask(), std::nullopt};
    } catch (const Error& error) {
      if (error.code() == Code::unavailable || error.code() == Code::unknown_outcome) throw;
      return {std::nullopt, error};
    }
  }
  void note_trouble(const std::optional<Error>& trouble) {
    Text text("Not available: ");
    text.quote(trouble->message());
    if (!trouble->hint().empty()) text.say(" Hint: ").quote(trouble->hint());
    writer_.note(text);
  }
  static std::string now() { return report_time(base::format_utc(base::system_clock().wall_ms())); }

  void begin(const std::optional<CommandList>& commands,
             const std::optional<ChangedFiles>& changes) {
    writer_.begin("Workspace " + workspace_.text("name"));
    writer_.paragraph(
        "The record of one Moorage workspace: a private copy of a repository in which a person or "
        "a "
        "program ran commands in a sandbox. It shows where the work began, what ran and how it "
        "ended, which snapshots exist, and what has changed.");
    Text how("Words set ");
    how.quote("like this");
    how.say(
        " and blocks of text come from the workspace or its owner, not from Moorage. Invisible "
        "characters are written as escapes, such as ");
    writer_.paragraph(how.quote("\\x1b").say(". Times are UTC."));
    std::vector<std::pair<std::string, Text>> rows;
    const auto add = [&rows](const char* title, Text text) {
      if (!text.empty()) rows.emplace_back(title, std::move(text));
    };
    add("Repository", repository());
    add("Base", base());
    add("Branch", branch());
    add("Forked from", fork());
    add("State", state());
    add("Made", Text(report_time(workspace_.text("created_at"))));
    add("Owner", owner());
    add("Labels", labels());
    add("Runs in", place());
    add("Commands", counts(commands));
    add("Changes", sum(changes));
    add("Report time", Text(now()));
    writer_.facts(rows);
  }

  Text repository() const {
    Text text = quoted(workspace_.text("repo.name"));
    if (workspace_.has("repo.url")) text.say(" from ").quote(workspace_.text("repo.url"));
    return text;
  }
  Text base() const {
    Text text;
    const std::string ref = short_ref(workspace_.text("base.ref"));
    if (!ref.empty()) text.quote(ref).say(" at ");
    text.quote(workspace_.text("base.commit"));
    if (workspace_.has("base.work")) text.say(" with its owner's uncommitted work");
    if (workspace_.has("base.moved_to")) {
      text.say(", after a rebase or merge inside ");
      text.quote(workspace_.text("base.moved_to"));
    }
    const int64_t behind = workspace_.number("base.behind");
    if (behind > 0) {
      text.say("; upstream has " + count_of(behind, "commit") + " more, as of " +
               report_time(workspace_.text("base.checked_at")));
    }
    if (workspace_.has("base.lost")) {
      text.say("; it rewrote its history without " +
               count_of(workspace_.number("base.lost"), "commit") + " of the base");
    }
    return text;
  }
  Text branch() const {
    Text text = quoted(workspace_.text("branch"));
    const int64_t unpushed = workspace_.number("unpushed");
    if (unpushed > 0) text.say(", with " + count_of(unpushed, "commit") + " missing upstream");
    return text;
  }
  Text fork() const {
    if (workspace_.has("forked_elsewhere"))
      return quoted(origin_text(workspace_.at("forked_elsewhere")));
    if (!workspace_.has("forked_from")) return {};
    Text text = quoted(workspace_.text("forked_from"));
    if (workspace_.number("attempt.of") > 1) {
      text.say(", attempt " + workspace_.text("attempt.number") + " of " +
               workspace_.text("attempt.of"));
    }
    return text;
  }
  Text state() const {
    const std::string state = workspace_.text("state");
    Text text(state);
    if (state == "ready") text = Text("sandbox " + workspace_.text("sandbox.state", "stopped"));
    if (workspace_.has("reason")) text.say(": ").quote(workspace_.text("reason"));
    if (needs_check(workspace_)) {
      text.say("; its files were changed outside Moorage: ")
          .quote(workspace_.text("integrity.reason", workspace_.text("integrity.state")));
    }
    return text;
  }
  Text owner() const {
    const int64_t uid = workspace_.number("owner", -1);
    Text text(uid < 0 ? "unknown" : workspace_.text("owner_name", user_name(uid)));
    if (workspace_.has("team")) text.say(", shared with ").quote(workspace_.text("team"));
    return text;
  }
  Text labels() const {
    Text text;
    for (const auto& [key, value] : workspace_.members("labels"))
      text.quote(shorten(key + "=" + value, 200));
    return text;
  }
  Text place() const {
    Text text = quoted(workspace_.text("backend"));
    if (workspace_.has("sandbox.isolation"))
      text.say(", isolation ").quote(workspace_.text("sandbox.isolation"));
    if (workspace_.has("image")) text.say(", image ").quote(workspace_.text("image"));
    return text;
  }
  static Text counts(const std::optional<CommandList>& commands) {
    if (!commands) return "unknown";
    std::string text = (commands->older ? "the last " : "") + std::to_string(commands->ran) +
                       " ran, " + std::to_string(commands->failed) + " failed";
    if (commands->running > 0) text += ", " + std::to_string(commands->running) + " still running";
    return text;
  }
  static Text sum(const std::optional<ChangedFiles>& changes) {
    if (!changes) return "unknown";
    return count_of(changes->files, "file") + ", +" + std::to_string(changes->added) + " -" +
           std::to_string(changes->removed) + " lines";
  }

  void lineage() {
    writer_.heading("Lineage");
    const auto tree = had(
        [&] { return Json::parse(context_.api().get(context_.workspace_path(name_, "/tree"))); });
    if (!tree.value) return note_trouble(tree.trouble);
    writer_.paragraph(
        "Each snapshot has its descendants below it: the past of a workspace is the line from it "
        "up to the base commit.");
    const std::vector<std::string> lines = draw_lineage(*tree.value);
    const size_t shown = std::min(lines.size(), limits_.lineage_lines);
    std::string picture;
    for (size_t n = 0; n < shown; ++n) picture += lines[n] + "\n";
    writer_.block(Block::drawing, picture);
    if (shown < lines.size()) {
      writer_.note(
          Text("Cut here: " + std::to_string(lines.size() - shown) + " more lines; see all: ")
              .quote("moorage tree " + name_));
    }
  }

  // "before ex_3", "requested".
  static Text cause(const Json& snapshot) {
    const std::string cause = snapshot.text("cause");
    if (cause == "before-exec") return Text("before ").quote(snapshot.text("exec", "a command"));
    if (cause == "manual") return "requested";
    return quoted(cause);
  }
  static Text way(const Json& snapshot) {
    const std::string way = snapshot.text("way");
    if (way == "at-rest") return "stopped";
    const int64_t pause_ms = (snapshot.number("pause_us") + 999) / 1000;
    return way + ", processes paused for " + format_took(pause_ms);
  }

  void snapshots() {
    writer_.heading("Snapshots");
    const auto list = had([&] {
      return Json::parse(context_.api().get(context_.workspace_path(name_, "/snapshots")));
    });
    if (!list.value) return note_trouble(list.trouble);
    const std::vector<Json> rows = list.value->items("snapshots");
    if (rows.empty()) return writer_.paragraph("No snapshots.");
    writer_.begin_table(
        {{"Id"}, {"Name"}, {"External id"}, {"Taken, UTC"}, {"Why"}, {"How"}, {"On disk"}});
    for (const Json& row : rows) {
      writer_.row({quoted(row.text("id")), quoted(row.text("name")),
                   quoted(row.text("external_id")), report_time(row.text("created_at")), cause(row),
                   way(row), row.flag("durable") ? "yes" : "not yet"});
    }
    writer_.end_table();
  }

  void patch() {
    writer_.heading("Patch");
    ReportPatch patch(writer_, limits_.patch);
    const auto done = had([&] {
      context_.api().download(context_.workspace_path(name_, "/diff"),
                              [&](std::string_view bytes) { patch.feed(bytes); });
      return true;
    });
    patch.finish();
    if (!done.value) return note_trouble(done.trouble);
    if (patch.bytes_left_out() == 0) {
      writer_.paragraph(
          "The patch is complete: " + count_of(static_cast<int64_t>(patch.files()), "file") + ", " +
          report_size(patch.bytes()) + ".");
      return;
    }
    std::string what = report_size(patch.bytes_left_out()) + " of " + report_size(patch.bytes()) +
                       " of the patch are left out";
    if (patch.files_left_out() > 0) {
      what += ", " + count_of(static_cast<int64_t>(patch.files_left_out()), "file") + " completely";
    }
    writer_.note(Text(what + ". See all: ").quote("moorage diff " + name_));
  }

  void commits() {
    writer_.heading("Commits");
    const auto done = had([&] {
      write_commits(context_, writer_, name_, limits_.commits);
      return true;
    });
    if (!done.value) note_trouble(done.trouble);
  }

  void missing() {
    writer_.heading("Not in this report");
    writer_.paragraph(
        "Files that git ignores, such as build output, and the home directory: the "
        "workspace and its snapshots have them, but a patch cannot.");
    const auto nested = had([&] { return list_nested(context_, name_); });
    if (nested.value && nested.value->count > 0) {
      Text text(count_of(static_cast<int64_t>(nested.value->count), "repository") +
                " inside the repository, which a patch cannot contain: ");
      for (const std::string& path : nested.value->names) text.quote(path);
      if (nested.value->count > nested.value->names.size()) text.say(" and more");
      writer_.note(text);
    }
    if (nested.value && nested.value->truncated)
      writer_.note(
          "There may be more: the workspace has too many changed files to check them all.");
    if (workspace_.text("sandbox.state") == "running") {
      writer_.note(
          "The sandbox was running: the parts above were read one after another and may show "
          "slightly different moments.");
      writer_.paragraph(
          "A power cut could still lose writes of the last seconds that no program synced. Killing "
          "processes loses nothing.");
    }
    if (workspace_.number("submodules") > 0) {
      writer_.note(count_of(workspace_.number("submodules"), "submodule") + " not checked out.");
    }
    if (workspace_.number("lfs") > 0)
      writer_.note(count_of(workspace_.number("lfs"), "file") + " left as LFS pointers.");
  }

  Context& context_;
  ReportWriter& writer_;
  const std::string name_;
  const ReportLimits limits_;
  Json workspace_;
};

}  // namespace

void write_report(Context& context, ReportWriter& writer, const std::string& workspace,
                  const ReportLimits& limits) {
  Report(context, writer, workspace, limits).write();
}

}  // namespace moorage::cli
