// How rules for hosts change a workspace's list of them. The last request about the same host,
// path and methods counts; methods of equal rules add up.
#pragma once

#include <string>
#include <vector>

namespace moorage::workspace {

struct RuleChange {  // texts of base/net/network_policy.h, like "github.com:22"
  std::vector<std::string> allow{};
  std::vector<std::string> deny{};
  std::vector<std::string> forget{};  // hosts whose rules go
};

// Throws invalid_argument.
void check_rules(const RuleChange& change);
// `words`: as in WorkspacePolicy::network_rules. Throws not_found for a host to forget that has no
// rule, and resource_exhausted for more than 1,000 rules.
void apply_rules(const RuleChange& change, std::vector<std::string>& words);

}  // namespace moorage::workspace
