// What a rented machine may reach if it gives its sandbox no network namespace: then the provider
// holds the rules, from outside, as far as it can. It knows names at the usual ports, and nothing
// of requests or credentials. Whatever a workspace's rules say more is a refusal with its reason,
// never a wider rule.
#pragma once

#include <string>
#include <vector>

#include "base/net/network_policy.h"
#include "base/net/request_policy.h"

namespace moorage::base {

struct ProviderRules {
  std::vector<std::string> hosts{};  // "web.example"; ".example.com": it and all names below it
  // Not empty: no provider can hold the rules, and the sandbox must not start there.
  std::string refusal{};
  std::string hint{};
};

// `workspace`: its name, for the hint.
ProviderRules provider_rules(const std::string& workspace, const NetworkPolicy& policy,
                             const std::vector<CredentialScope>& credentials);
// For people: "held by the provider: web.example".
std::string provider_rules_text(const ProviderRules& rules);

}  // namespace moorage::base
