// The differences between two workspaces of one repository, or between a fork and its origin.
// Derived from the layers alone, like workspace/changes/changes.h: files that git would ignore do
// not count, and neither tree is mounted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "state_db/tables/best_of.h"
#include "state_db/tables/execs.h"
#include "workspace/access/access.h"
#include "workspace/changes/changes.h"
#include "workspace/context/context.h"
#include "workspace/remote/remote_copy.h"

namespace moorage::workspace {

struct ComparisonView {
  struct Side {
    state_db::WorkspaceRow row;
    std::optional<state_db::ExecRow> last;  // the newest command, hooks excluded
  };
  Side from;
  Side to;
  std::vector<DiffStat> files;  // by path
};

class Comparison {
 public:
  Comparison(Context& context, RemoteCopy& remote)
      : context_(context), remote_(remote), changes_(context.repos) {}

  // invalid_argument: they belong to different repositories.
  ComparisonView compare(const Caller& caller, const std::string& from, const std::string& to);
  // A patch that turns `from` into `to`.
  Patch patch(const Caller& caller, const std::string& from, const std::string& to);
  // A fork compared with the snapshot that it was made from. nullopt: too much to count.
  std::optional<state_db::AttemptDiff> since_fork(const state_db::WorkspaceRow& fork);

 private:
  Context& context_;
  RemoteCopy& remote_;
  Changes changes_;
};

}  // namespace moorage::workspace
