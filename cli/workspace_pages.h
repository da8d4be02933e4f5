// All workspaces that one may see: the daemon tells them page by page, a command wants them all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/json.h"

namespace moorage::cli {

class Context;

struct WorkspaceList {
  std::vector<Json> workspaces;  // by id
  Json first;                    // the first page, for what it tells beside them
  std::string answer;            // as it came, where one page was all
  std::string json() const;      // as one answer, in any case
};

// `ask` answers a GET of a target; null ends the list.
WorkspaceList all_workspaces(const std::function<Json(const std::string& target)>& ask,
                             bool deleted = false);
WorkspaceList all_workspaces(Context& context, bool deleted = false);

}  // namespace moorage::cli
