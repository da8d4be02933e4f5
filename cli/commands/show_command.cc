// `show`: the details of one workspace, one line for each question. Lines without data are left
// out.
#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

class Page {
 public:
  Page(const Json& workspace, int64_t now_ms) : ws_(workspace), now_ms_(now_ms) {}

  std::string render() {
    head();
    base();
    fork();
    branch();
    changes();
    specials();
    sandbox();
    doing();
    keeping();
    next();
    return text_;
  }

 private:
  void line(std::string_view label, const std::string& text) {
    constexpr size_t kColumn = 11;
    if (!text.empty()) text_ += label_line(label, text, kColumn);
  }
  std::string ago(const std::string& field, const std::string& before) const {
    const int64_t age = age_of(ws_, field, now_ms_);
    return age < 0 ? "" : before + format_age_long(age) + " ago";
  }
  std::string size(const std::string& field) const { return size_text(ws_, field); }

  void head() {
    std::string text = ws_.text("name") + "  " + ws_.text("id") + "  owner " + owner_text(ws_);
    for (const auto& [key, value] : ws_.members("labels")) text += "  " + key + "=" + value;
    text_ += printable(text) + "\n";
    if (ws_.has("team")) line("team", "members of " + ws_.text("team") + " may use it");
    const std::string state = ws_.text("state");
    if (state != "ready") line("state", state + ago("deleted_at", " "));
    line("reason", ws_.text("reason"));
  }

  void base() {
    std::string text = ws_.text("repo.name", "no repository");
    const std::string commit = short_commit(ws_.text("base.commit"));
    const std::string ref = short_ref(ws_.text("base.ref"));
    if (!ref.empty()) text += " " + ref;
    if (!commit.empty()) text += " " + commit;
    text += work_text(ws_);
    if (ws_.has("base.moved_to")) {
      text += ", after a rebase or merge inside " + short_commit(ws_.text("base.moved_to"));
    }
    const int64_t behind = ws_.number("base.behind");
    if (behind > 0) text += ", " + std::to_string(behind) + " behind";
    if (ws_.has("base.lost")) {
      text += "; upstream rewrote its history without " +
              count_of(ws_.number("base.lost"), "commit") + " of the base";
    }
    const std::string checked = ago("base.checked_at", "checked ");
    if (!checked.empty()) text += " (" + checked + ")";
    if (ws_.flag("base.stale")) {
      text += "; upstream did not answer: " + ws_.text("base.stale_reason", "this may be stale");
    }
    line("base", text);
  }

  // "sn_4", or "sn_4 of shop (ws_3) in store 1a2b3c4d"
  void fork() {
    std::string text = ws_.text("forked_from");
    if (ws_.has("forked_elsewhere")) text = origin_text(ws_.at("forked_elsewhere"));
    line("fork of", text);
  }

  // "412M of 20G, 8100 files (watched)"
  std::string disk_text() const {
    std::string text = size("disk_bytes");
    if (ws_.number("limits.disk_bytes") > 0) text += " of " + size("limits.disk_bytes");
    if (ws_.has("disk_files")) text += ", " + count_of(ws_.number("disk_files"), "file");
    const bool limited = ws_.number("limits.disk_bytes") + ws_.number("limits.disk_files") > 0;
    if (limited && ws_.has("disk_quota")) text += " (" + ws_.text("disk_quota") + ")";
    return text + (ws_.flag("pinned") ? ", pinned" : "");
  }

  void branch() {
    std::string text = ws_.text("branch");
    const int64_t unpushed = ws_.number("unpushed");
    if (unpushed > 0) text += ", " + count_of(unpushed, "commit") + " not pushed";
    line("branch", text);
  }

  void changes() {
    if (!ws_.has("changes")) return;
    const int64_t files = ws_.number("changes.files");
    std::string text = files == 0 ? "none" : count_of(files, "file");
    const int64_t untracked = ws_.number("changes.untracked");
    if (untracked > 0) text += ", " + std::to_string(untracked) + " untracked";
    const std::string as_of = ago("changes.as_of", " (as of ");
    line("changes", as_of.empty() ? text : text + as_of + ")");
  }

  void specials() {
    for (const char* name : {"submodules", "lfs"}) {
      const Json place = ws_.at(name);
      const auto list = static_cast<int64_t>(place.items().size());
      const int64_t count = list > 0 ? list : place.number();
      if (count == 0) continue;
      const bool lfs = std::string_view(name) == "lfs";
      line(name, lfs ? count_of(count, "LFS pointer") + ", contents not fetched"
                     : count_of(count, "submodule") + " not checked out");
    }
  }

  void sandbox() {
    std::string text = ws_.text("sandbox.state", "none");
    if (ws_.has("sandbox.id")) text = ws_.text("sandbox.id") + " " + text;
    text += ", " + ws_.text("backend");
    if (ws_.has("sandbox.isolation")) text += ", " + ws_.text("sandbox.isolation");
    if (ws_.has("image")) text += ", image " + ws_.text("image");
    if (ws_.has("runtime")) text += ", runtime " + ws_.text("runtime");
    if (ws_.has("stopped")) {
      text += ago("stopped.since_at", "; stopped ");
      const std::string reason = stop_reason(ws_);
      if (!reason.empty()) text += ": " + reason;
    }
    line("sandbox", text);
    std::string limits;
    const auto add = [&limits](const std::string& part) {
      limits += (limits.empty() ? "" : ", ") + part;
    };
    if (ws_.number("limits.memory_bytes") > 0) {
      const bool used = ws_.number("sandbox.memory_bytes") > 0;
      add("memory " + (used ? size("sandbox.memory_bytes") + " used of " : "") +
          size("limits.memory_bytes"));
    }
    if (ws_.real("limits.cpus") > 0) {
      char cpus[32];
      std::snprintf(cpus, sizeof cpus, "cpu %g", ws_.real("limits.cpus"));
      add(cpus);
    }
    if (ws_.number("limits.pids") > 0) {
      const std::string used = ws_.text("sandbox.processes");
      add("processes " + (used.empty() ? "" : used + " of ") + ws_.text("limits.pids"));
    }
    line("limits", limits);
  }

  void doing() {
    if (!ws_.has("doing")) return line("doing", "nothing");
    std::string text =
        ws_.text("doing.exec") + " " + shorten(join_command(ws_.at("doing").byte_list("argv")), 40);
    const int64_t age = age_of(ws_, "doing.since_at", now_ms_);
    if (age >= 0) text.append(" ").append(format_age(age));
    line("doing", text + ago("doing.last_output_at", ", last output "));
    if (!ws_.has("blocked")) return;
    const std::string host = ws_.text("blocked.host");
    line("blocked", host + " (" + ws_.text("blocked.exec") + "); allow it: moorage net allow " +
                        ws_.text("name") + " " + host);
  }

  void keeping() {
    if (ws_.has("holder")) line("holder", holder_line(ws_.at("holder")));
    const Json integrity = ws_.at("integrity");
    std::string safe;
    if (integrity.is_object()) {
      safe = "files " + integrity.text("state");
      std::replace(safe.begin(), safe.end(), '-', ' ');
      const std::string checked = ago("integrity.checked_at", "checked ");
      if (!checked.empty()) safe += " (" + checked + ")";
      const std::string reason = integrity.text("reason");
      if (!reason.empty()) safe += "; " + reason;
    }
    const std::string off_host = off_host_text(ws_.at("replica"));
    if (!off_host.empty()) safe += (safe.empty() ? "" : "; ") + off_host;
    line("safe", safe);
    line("remote", remote_text(ws_.at("sandbox.remote")));
    line("cost", hours_text(ws_.at("sandbox"), now_ms_));
    line("notice", ws_.text("notice"));
    if (ws_.has("disk_bytes")) line("disk", disk_text());
    if (ws_.has("archive")) {
      line("archive", size("archive.bytes") + " in " + ws_.text("archive.file") +
                          ago("archive.archived_at", ", "));
    }
    line("made", ago("created_at", ""));
    budget();
    stops();
    if (ws_.has("pre_stop")) line("pre_stop", shorten(join_command(ws_.byte_list("pre_stop")), 60));
  }

  // "12 of 100 commands, 3m of 1h, each at most 10m"
  void budget() {
    std::string text;
    const auto add = [&text](const std::string& part) {
      text += (text.empty() ? "" : ", ") + part;
    };
    const int64_t execs = ws_.number("max_execs"), total_s = ws_.number("max_exec_total_s");
    const int64_t each_s = ws_.number("max_exec_s");
    if (execs > 0) add(ws_.text("used_execs") + " of " + count_of(execs, "command"));
    if (total_s > 0)
      add(format_age(ws_.number("used_exec_ms")) + " of " + format_age(total_s * 1000));
    if (each_s > 0) add("each at most " + format_age(each_s * 1000));
    line("budget", text);
  }

  // "30m after the last exec ends (now busy: exec ex_3)", "in 12m"; plus the lifetime, if limited.
  // For a stopped sandbox: the rules once it runs.
  void stops() {
    const int64_t after_s = ws_.number("idle_stop_s");
    const int64_t most_s = ws_.number("max_lifetime_s");
    const std::string after = format_seconds(after_s) + " after the last exec ends";
    std::string text;
    if (ws_.text("sandbox.state") == "running") {
      const std::string busy = ws_.text("sandbox.busy_with");
      if (ws_.has("sandbox.idle_stop_in_ms")) {
        text = "in " + format_age(ws_.number("sandbox.idle_stop_in_ms")) + ", if nothing runs; ";
      } else if (after_s > 0) {
        text = after;
        text += busy.empty() ? "; " : " (now busy: " + busy + "); ";
      }
      if (ws_.has("sandbox.lifetime_left_ms"))
        text += "at the latest in " + format_age(ws_.number("sandbox.lifetime_left_ms")) + "; ";
      if (text.empty()) text = "moorage stop " + ws_.text("name") + "; ";
    } else {
      if (after_s > 0) text = after;
      if (most_s > 0)
        text += (text.empty() ? "" : ", ") + format_seconds(most_s) + " after it starts";
      text = "when it runs: " + (text.empty() ? "by hand" : text) + "; ";
    }
    line("stops", text + "no timer deletes the workspace");
  }

  void next() {
    const std::string name = ws_.text("name");
    if (ws_.text("state") == "deleted") return line("next", "moorage undelete " + name);
    if (ws_.text("state") == "archived") {
      return line("next", "moorage unarchive " + name + " | start " + name + " | history " + name);
    }
    const std::string exec = ws_.text("doing.exec");
    const std::string first = exec.empty() ? "exec " + name + " -- CMD" : "attach " + exec;
    line("next", "moorage " + first + " | diff " + name + " | shell " + name + " | logs " + name);
  }

  const Json& ws_;
  const int64_t now_ms_;
  std::string text_;
};

void show(Context& context, const std::string& name) {
  const auto workspace = context.parse_or_print(context.api().get(context.workspace_path(name)));
  if (workspace) context.print(Page(*workspace, base::system_clock().wall_ms()).render());
}

}  // namespace

Action show_command(Options& options) { return run_with_workspace(options, show); }

}  // namespace moorage::cli
