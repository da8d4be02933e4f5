// `repo add|ls|fetch|rm`: the cache of upstream repositories; `sync`: its news in a workspace.
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/views/progress.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

void print_repo(Context& context, const std::string& answer) {
  const auto repo = context.parse_or_print(answer);
  if (!repo) return;
  std::string text = repo->text("name") + "   " + repo->text("default_branch") + " " +
                     short_commit(repo->text("tip")) + "   " + size_text(*repo, "bytes");
  if (repo->flag("stale")) text += "   stale: " + repo->text("stale_reason");
  context.print_label(repo->text("id"), text);
}

void add_repo(Context& context, const std::string& url) {
  Progress progress(context);
  const std::string answer = context.api().send_long(
      "POST", "/v1/repos", JsonObject().add("url", url).str(), progress.sink());
  progress.finish();
  print_repo(context, answer);
}

int list_repos(Context& context) {
  const auto repos = context.parse_or_print(context.api().get("/v1/repos"));
  if (!repos) return 0;
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({"ID", shrinks("NAME"), "STATE", shrinks("BRANCH"), "TIP", "FETCHED", right("SIZE"),
               right("USED BY")});
  for (const Json& repo : repos->items()) {
    const int64_t age = age_of(repo, "fetched_at", now_ms);
    const bool stale = repo.flag("stale");
    table.add({repo.text("id"), repo.text("name"),
               stale ? Cell("stale", Colour::yellow) : Cell(repo.text("state")),
               repo.text("default_branch"), short_commit(repo.text("tip")),
               age < 0 ? "-" : format_age(age), size_text(repo, "bytes"),
               repo.text("workspaces", "0")});
  }
  table.empty() ? context.print("no repositories yet; cache one:\n  moorage repo add URL\n")
                : context.print_table(table);
  return 0;
}

void fetch_repo(Context& context, const std::string& id) {
  Progress progress(context);
  const std::string answer = context.api().send_long(
      "POST", "/v1/repos/" + percent_encode(id) + "/fetch", {}, progress.sink());
  progress.finish();
  // For create a stale cache is better than none; here the fetch is the whole purpose.
  const Json repo = Json::parse(answer);
  if (repo.flag("stale")) {
    throw Error(Code::unavailable,
                repo.text("name") + " was not fetched: " + repo.text("stale_reason"),
                "the previous fetch remains usable; try again later");
  }
  print_repo(context, answer);
}

void remove_repo(Context& context, const std::string& id) {
  context.api().send("DELETE", "/v1/repos/" + percent_encode(id));
  if (context.json) return context.print_json(JsonObject().add("repo", id).add("removed", true));
  context.print_label("removed", id + "   the next use clones it again");
}

void sync(Context& context, const std::string& name) {
  Progress progress(context);
  const std::string answer =
      context.api().send_long("POST", context.workspace_path(name, "/sync"), {}, progress.sink());
  progress.finish();
  const auto workspace = context.parse_or_print(answer);
  if (!workspace) return;
  context.print_label("synced", name + "   " + workspace->text("notice"));
  const int64_t behind = workspace->number("base.behind");
  const std::string ref = workspace->text("base.ref");
  if (behind == 0 || ref.starts_with("refs/tags/")) return;
  context.note(name + " is " + count_of(behind, "commit") + " behind; moorage exec " + name +
               " -- git rebase --autostash origin/" + short_ref(ref));
}

}  // namespace

Action repo_add_command(Options& options) {
  return run_with_argument(options, {"URL", "", "An https, ssh or git URL"}, add_repo);
}

Action repo_ls_command(Options&) { return list_repos; }

Action repo_fetch_command(Options& options) {
  return run_with_argument(options, {"REPO", "", "Its id, name or URL, as in repo ls"}, fetch_repo);
}

Action repo_rm_command(Options& options) {
  return run_with_argument(options, {"REPO", "", "Its id, name or URL, as in repo ls"},
                           remove_repo);
}

Action sync_command(Options& options) {
  return run_with_argument(options, {"NAME", "", "The workspace"}, sync);
}

}  // namespace moorage::cli
