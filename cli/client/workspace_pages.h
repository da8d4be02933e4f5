// All visible workspaces, collected from the pages that the daemon sends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/client/json.h"

namespace moorage::cli {

class Context;

struct WorkspaceList {
  std::vector<Json> workspaces;  // by id
  Json first;                    // the first page, with the other fields
  std::string answer;            // unchanged, if there was only one page
  std::string json() const;      // all pages as one answer
};

// `ask` returns the answer to GET of a target; null ends the list.
WorkspaceList all_workspaces(const std::function<Json(const std::string& target)>& ask,
                             bool deleted = false);
WorkspaceList all_workspaces(Context& context, bool deleted = false);

}  // namespace moorage::cli
