// What differs between two workspaces of one repository, or between a fork and where it began. Told
// from the layers alone, as changes.h does: files that git would ignore are no difference, and
// neither tree is entered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "state_db/best_of.h"
#include "state_db/execs.h"
#include "workspace/changes.h"
#include "workspace/context.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

struct ComparisonView {
  struct Side {
    state_db::WorkspaceRow row;
    std::optional<state_db::ExecRow> last;  // the newest command that was asked for
  };
  Side from;
  Side to;
  std::vector<DiffStat> files;  // by path
};

class Comparison {
 public:
  Comparison(Context& context, Workspaces& workspaces)
      : context_(context), workspaces_(workspaces), changes_(context.repos) {}

  // invalid_argument: they are of different repositories.
  ComparisonView compare(const Caller& caller, const std::string& from, const std::string& to);
  // A patch that makes `to` of `from`.
  std::string patch(const Caller& caller, const std::string& from, const std::string& to);
  // A fork against the snapshot that it was made of. Nothing: there is too much to be counted.
  std::optional<state_db::AttemptDiff> since_fork(const state_db::WorkspaceRow& fork);

 private:
  struct Two {
    state_db::WorkspaceRow from;
    state_db::WorkspaceRow to;
  };
  Two find(const Caller& caller, const std::string& from, const std::string& to);
  ChangeSource at_fork(const state_db::WorkspaceRow& fork, const ChangeSource& now);
  std::optional<state_db::ExecRow> last_exec(base::WorkspaceId id);

  Context& context_;
  Workspaces& workspaces_;
  Changes changes_;
};

}  // namespace moorage::workspace
