// Changes of a workspace's policy, as a request names them: create begins with the host's settings,
// update with what is in the row.
#pragma once

#include <set>
#include <string>
#include <type_traits>

#include "state_db/workspace_policy.h"
#include "workspace/context.h"

namespace moorage::workspace {

struct PolicyChange {
  state_db::WorkspacePolicy to;
  std::set<std::string> named;  // fields that the request named; of `to` nothing else counts

  // Takes a field as the request has it, if it has it.
  template <typename Given, typename T>
  void take(const char* name, const Given& given, T& field) {
    if (!given) return;
    field = static_cast<T>(*given);
    named.insert(name);
  }
};

// Throws invalid_argument for what is out of range.
void check_policy(const PolicyChange& change);
void apply_policy(const PolicyChange& change, state_db::WorkspacePolicy& policy);
// With the host's settings in the place of what is left to them.
state_db::WorkspacePolicy effective_policy(const state_db::WorkspacePolicy& policy,
                                           const Options& options);
// "name=value" of every field that is named, length-prefixed.
std::string policy_hash_text(const PolicyChange& change);

}  // namespace moorage::workspace
