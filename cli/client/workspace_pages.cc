#include "cli/client/workspace_pages.h"

#include "cli/client/context.h"

namespace moorage::cli {

std::string WorkspaceList::json() const {
  if (!answer.empty()) return answer;
  return JsonObject().add("workspaces", workspaces).add("store", first.at("store")).str();
}

WorkspaceList all_workspaces(const std::function<Json(const std::string& target)>& ask,
                             bool deleted) {
  const std::string all = deleted ? "/v1/workspaces?deleted=1" : "/v1/workspaces";
  WorkspaceList list;
  std::string after;
  for (;;) {
    const Json page = ask(after.empty() ? all : all + (deleted ? "&" : "?") + "after=" + after);
    if (after.empty()) list.first = page;
    for (Json& workspace : page.items("workspaces"))
      list.workspaces.push_back(std::move(workspace));
    const std::string next = page.text("next");
    if (next.empty() || next == after) return list;
    after = next;
  }
}

WorkspaceList all_workspaces(Context& context, bool deleted) {
  std::string answer;
  size_t pages = 0;
  const auto ask = [&](const std::string& target) {
    answer = context.api().get(target);
    ++pages;
    return Json::parse(answer);
  };
  WorkspaceList list = all_workspaces(ask, deleted);
  if (pages == 1) list.answer = std::move(answer);
  return list;
}

}  // namespace moorage::cli
