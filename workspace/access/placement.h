// Which backend, isolation and limits the host's rules allow a workspace. All rules that match its
// owner and labels apply together, so no rule loosens another; among their defaults the first one
// wins. A refusal gives the rule's name, the request and what the rule allows; there is no silent
// fallback. Checked by create, update and fork, by each move, and by each start, because the rules
// may have changed since: the workspace then stays stopped and unchanged.
//
// An owner's groups are those in the host's user database, not those of the requesting process,
// which may have started without groups or dropped some. Rules for groups apply to an owner whom
// that database does not know.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "state_db/tables/workspace_row.h"
#include "workspace/context/context.h"

namespace moorage::backends {
class Registry;
}

namespace moorage::workspace {

struct Context;

// Takes the configuration's spelling. Throws invalid_argument for an unknown word; an empty one
// sets no requirement.
std::optional<backends::Isolation> isolation_of_name(const std::string& name);

// Throws invalid_argument for a rule that names an unknown backend.
void check_rules(const std::vector<PlacementRule>& rules, const std::vector<std::string>& backends);
// The rules that may apply to a workspace of this user, whatever its labels are.
std::vector<PlacementRule> rules_for(const std::vector<PlacementRule>& rules, uint32_t owner_uid);

class Placement {
 public:
  using Labels = std::map<std::string, std::string>;
  // For a new workspace; `name` is the workspace that it is forked from, if any.
  Placement(const Context& context, uint32_t owner_uid, const Labels& labels,
            std::string name = {});
  Placement(const Context& context, const state_db::WorkspaceRow& row);

  // For a workspace that names neither a place nor a runtime.
  state_db::Place place_or(state_db::Place usual) const;
  // For a workspace that names no limits: the usual ones, lowered to the allowed maximum.
  state_db::WorkspaceLimits limits_or(state_db::WorkspaceLimits usual) const;
  std::string network_or(const std::string& named) const;  // for one that names none: the usual
  // Lowers to the allowed maximum and returns a text of the changes; empty: nothing changed.
  std::string lower(state_db::WorkspaceLimits& limits) const;

  // The checks below throw permission_denied. They throw unsupported if the backend is unusable now
  // or lacks the runtime: its isolation is then unknown.
  void check_backend_accepts(const state_db::Place& place) const;
  void check_limits(const state_db::WorkspaceLimits& limits) const;
  // invalid_argument: the host has no such network. unsupported: the backend cannot restrict it.
  void check_network(const std::string& network, const std::string& backend) const;
  // Adds what the rules say about hosts.
  void restrict_hosts(base::NetworkPolicy& policy) const;
  // Only the fields with these names (state_db/tables/workspace_policy.h).
  void check_limits(const state_db::WorkspaceLimits& limits,
                    const std::set<std::string>& named) const;

 private:
  struct Holding {
    const PlacementRule* rule;
    std::string because;  // if the rule alone does not explain it
  };
  [[noreturn]] void refuse(const Holding& holding, const std::string& what,
                           const std::string& hint) const;
  const Holding* forbidding(const std::string& backend, const std::string& runtime) const;
  std::string what_is_allowed() const;

  const Context& context_;
  const std::string name_;  // workspace whose limits can be set; empty: none
  const PlacementRules::Set all_;
  std::vector<Holding> rules_;  // those of `all_` that apply
};

// Whether an existing workspace may start a sandbox in this place: for each start and each move.
void check_placement(const Context& context, const state_db::WorkspaceRow& row,
                     const state_db::Place& place);
// The same for its current place; the error is worded for a person whose command cannot start.
void check_start(const Context& context, const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
