// Changes that a request makes to a workspace's policy: create starts from the host's settings,
// update from the row.
#pragma once

#include <set>
#include <string>

#include "state_db/tables/workspace_policy.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

struct PolicyChange {
  state_db::WorkspacePolicy to;
  std::set<std::string> named;  // fields in the request; ignore the rest of `to`

  // Takes a field from the request if the request has it.
  template <typename Given, typename T>
  void take(const char* name, const Given& given, T& field) {
    if (!given) return;
    field = static_cast<T>(*given);
    named.insert(name);
  }
};

// Throws invalid_argument for a value out of range.
void check_policy(const PolicyChange& change);
void apply_policy(const PolicyChange& change, state_db::WorkspacePolicy& policy);
// With the host's settings for the fields that follow them.
state_db::WorkspacePolicy effective_policy(const state_db::WorkspacePolicy& policy,
                                           const Options& options);
// "name=value" of every named field, length-prefixed.
std::string policy_hash_text(const PolicyChange& change);

}  // namespace moorage::workspace
