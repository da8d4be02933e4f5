// What the host's rules let a workspace be: on which backend, how well isolated, with which limits.
// All rules that hold for its owner and labels hold together, so none loosens another; of their
// defaults the first one counts. Whatever is outside is refused with the rule's name, what was
// asked and what it allows: nothing falls back to something else. Asked by create, update and fork,
// by each start (the rules may be others by now, the workspace then rests as it is), and by a move.
//
// An owner's groups are those that the host's user database has, not those of a process that asks:
// a start may have none, and a process can leave a group. For an owner whom that database does not
// know, rules for groups hold.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "state_db/workspace_row.h"
#include "workspace/placement_rule.h"

namespace moorage::backends {
class Registry;
}

namespace moorage::workspace {

struct Context;

// As the configuration spells it. Throws invalid_argument for another word; empty: nothing is
// asked.
std::optional<backends::Isolation> isolation_of_name(const std::string& name);

// Throws invalid_argument for a rule that names a backend which there is not.
void check_rules(const std::vector<PlacementRule>& rules, const std::vector<std::string>& backends);
// Those that may hold for a workspace of this user, whatever its labels are.
std::vector<PlacementRule> rules_for(const std::vector<PlacementRule>& rules, uint32_t owner_uid);

class Placement {
 public:
  using Labels = std::map<std::string, std::string>;
  // Of a new workspace; `name` is of the one that it is forked from, if it is.
  Placement(const Context& context, uint32_t owner_uid, const Labels& labels,
            std::string name = {});
  Placement(const Context& context, const state_db::WorkspaceRow& row);

  // Of a workspace that names none, nor a runtime.
  state_db::Place place_or(state_db::Place usual) const;
  // Of a workspace that names none: what is usual, lowered to what is allowed.
  state_db::WorkspaceLimits limits_or(state_db::WorkspaceLimits usual) const;
  // To what is allowed, and says what was lowered; empty: nothing.
  std::string lower(state_db::WorkspaceLimits& limits) const;

  // Those below throw permission_denied. Also unsupported: how a backend isolates that cannot be
  // used now, or has no such runtime, is not known.
  void check_place(const state_db::Place& place) const;
  void check_limits(const state_db::WorkspaceLimits& limits) const;
  // Only those with these names of fields (workspace_policy.h).
  void check_limits(const state_db::WorkspaceLimits& limits,
                    const std::set<std::string>& named) const;

 private:
  struct Holding {
    const PlacementRule* rule;
    std::string because;  // where that is not plain from the rule itself
  };
  [[noreturn]] void refuse(const Holding& holding, const std::string& what,
                           const std::string& hint) const;
  const Holding* forbidding(const std::string& backend, const std::string& runtime) const;
  std::string what_is_allowed() const;

  const Context& context_;
  const std::string name_;  // of the workspace whose limits can be set; empty: there is none
  std::vector<Holding> rules_;
};

// Whether a sandbox of a workspace, as it is, may be started there: each start and each move.
void check_placement(const Context& context, const state_db::WorkspaceRow& row,
                     const state_db::Place& place);
// The same where it is now, said as what a person sees whose command cannot begin.
void check_start(const Context& context, const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
