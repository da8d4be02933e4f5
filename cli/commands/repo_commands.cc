// `repo add|ls|fetch|rm`: the cache of upstream repositories.
#include "base/clock.h"
#include "base/error.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"
#include "cli/views/progress.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

std::string repo_line(const Json& repo) {
  std::string text = repo.text("name") + "   " + repo.text("default_branch") + " " +
                     short_commit(repo.text("tip")) + "   " +
                     format_size(static_cast<uint64_t>(repo.number("bytes")));
  if (repo.flag("stale")) text += "   stale: " + repo.text("stale_reason");
  return text;
}

int print_repo(Context& context, const std::string& answer) {
  if (context.printed_json(answer)) return 0;
  const Json repo = Json::parse(answer);
  context.print(label_line(repo.text("id"), repo_line(repo)));
  return 0;
}

int add_repo(Context& context, const std::string& url) {
  Progress progress(context);
  const std::string answer = context.api().send_long(
      "POST", "/v1/repos", JsonObject().add("url", url).str(), progress.sink());
  progress.finish();
  return print_repo(context, answer);
}

int list_repos(Context& context) {
  const std::string answer = context.api().get("/v1/repos");
  if (context.printed_json(answer)) return 0;
  const Json json = Json::parse(answer);
  const std::vector<Json> repos = json.is_object() ? json.items("repos") : json.items();
  if (repos.empty()) {
    context.print("no repositories yet; cache one:\n  moorage repo add URL\n");
    return 0;
  }
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({{"ID"},
               {"NAME", false, true},
               {"STATE"},
               {"BRANCH", false, true},
               {"TIP"},
               {"FETCHED"},
               {"SIZE", true},
               {"USED BY", true}});
  for (const Json& repo : repos) {
    const int64_t age = age_of(repo, "fetched_at", now_ms);
    const bool stale = repo.flag("stale");
    table.add({repo.text("id"),
               repo.text("name"),
               {stale ? "stale" : repo.text("state"), stale ? Colour::yellow : Colour::plain},
               repo.text("default_branch"),
               short_commit(repo.text("tip")),
               age < 0 ? "-" : format_age(age),
               format_size(static_cast<uint64_t>(repo.number("bytes"))),
               repo.text("workspaces", "0")});
  }
  context.print_table(table);
  return 0;
}

int fetch_repo(Context& context, const std::string& id) {
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
  return print_repo(context, answer);
}

int remove_repo(Context& context, const std::string& id) {
  context.api().send("DELETE", "/v1/repos/" + percent_encode(id));
  if (context.json) {
    context.print_json(JsonObject().add("repo", id).add("removed", true).str());
    return 0;
  }
  context.print(label_line("removed", id + "   the next use clones it again"));
  return 0;
}

Action with_id(Options& options, int (*act)(Context&, const std::string&)) {
  auto id = std::make_shared<std::string>();
  options.argument({"REPO", "", "Its id, name or URL, as in repo ls"}, *id);
  return [id, act](Context& context) { return act(context, *id); };
}

}  // namespace

Action repo_add_command(Options& options) {
  auto url = std::make_shared<std::string>();
  options.argument({"URL", "", "An https, ssh or git URL"}, *url);
  return [url](Context& context) { return add_repo(context, *url); };
}

Action repo_ls_command(Options&) { return list_repos; }

Action repo_fetch_command(Options& options) { return with_id(options, fetch_repo); }

Action repo_rm_command(Options& options) { return with_id(options, remove_repo); }

}  // namespace moorage::cli
