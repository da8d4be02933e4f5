#include "base/net/provider_rules.h"

#include <algorithm>
#include <iterator>

namespace moorage::base {
namespace {

constexpr size_t kShown = 20;
const std::vector<uint16_t> kUsualPorts{80, 443};

bool is_suffix(const NetworkRule& rule) { return rule.host.starts_with('.'); }

// Whether two rules speak of a common name.
bool overlap(const NetworkRule& one, const NetworkRule& other) {
  const auto covers_names_of = [](const NetworkRule& wide, const NetworkRule& narrow) {
    if (!is_suffix(wide)) return wide.host == narrow.host;
    return narrow.host.ends_with(wide.host) || narrow.host == wide.host.substr(1);
  };
  return covers_names_of(one, other) || covers_names_of(other, one);
}

std::string because(const NetworkRule& rule, const std::string& why) {
  return "the rule '" + rule_text(rule) + "' " + why;
}

// Every rule that refuses, or that limits what may be allowed.
std::vector<NetworkRule> refusals(const NetworkPolicy& policy) {
  std::vector<NetworkRule> all = policy.refused_by_operator;
  for (const auto* rules : {&policy.own, &policy.preset}) {
    std::copy_if(rules->begin(), rules->end(), std::back_inserter(all),
                 [](const NetworkRule& rule) { return rule.verdict != Verdict::allow; });
  }
  return all;
}

// Why a provider cannot hold a rule that allows; empty: it can.
std::string why_not(const NetworkPolicy& policy, const NetworkRule& rule) {
  if (is_narrow(rule)) return because(rule, "is about requests, and a provider sees none");
  if (!rule.ports.empty() && rule.ports != kUsualPorts)
    return because(rule, "is about ports, and a provider holds names only");
  for (const NetworkRule& refused : refusals(policy)) {
    if (is_suffix(rule) && overlap(refused, rule))
      return because(rule, "has the exception '" + rule_text(refused) + "'");
  }
  if (is_suffix(rule) && !policy.allowed_by_operator.empty())
    return because(rule, "is limited by the administrator of this host");
  const std::string_view name = std::string_view(rule.host).substr(is_suffix(rule) ? 1 : 0);
  const auto ports = allowed_ports(policy, name);
  if (!ports.empty() && ports != kUsualPorts)
    return because(rule, "holds at some ports only, and a provider holds names only");
  for (const uint16_t port : ports) {
    if (depends_on_request(policy, name, port))
      return because(rule, "holds for some requests only, and a provider sees none");
  }
  return {};
}

std::string add_allowed(const NetworkPolicy& policy, std::vector<std::string>& hosts) {
  for (const auto* rules : {&policy.own, &policy.preset}) {
    for (const NetworkRule& rule : *rules) {
      if (rule.verdict != Verdict::allow) continue;
      if (std::string why = why_not(policy, rule); !why.empty()) return why;
      const bool refused = !is_suffix(rule) && allowed_ports(policy, rule.host).empty();
      const bool known = std::find(hosts.begin(), hosts.end(), rule.host) != hosts.end();
      if (!refused && !known) hosts.push_back(rule.host);
    }
  }
  return {};
}

}  // namespace

ProviderRules provider_rules(const std::string& workspace, const NetworkPolicy& policy,
                             const std::vector<CredentialScope>& credentials) {
  ProviderRules rules;
  rules.refusal =
      policy.open ? "network " + policy.mode + " is about ports, and a provider holds names only"
                  : add_allowed(policy, rules.hosts);
  for (const CredentialScope& scope : credentials) {
    if (!rules.refusal.empty() || allowed_ports(policy, scope.host).empty()) continue;
    rules.refusal =
        "the credential " + scope.credential + " for " + scope.host + " would have to be there";
  }
  if (rules.refusal.empty()) return rules;
  rules.hosts.clear();
  rules.hint =
      "use a template or image that allows user namespaces; or only allow hosts by name: "
      "moorage set " +
      workspace + " --network none";
  return rules;
}

std::string provider_rules_text(const ProviderRules& rules) {
  const std::string holds = "held by the provider: ";
  if (rules.hosts.empty()) return holds + "no host";
  std::string hosts;
  for (size_t i = 0; i < rules.hosts.size() && i < kShown; ++i)
    hosts += (i == 0 ? "" : ", ") + rules.hosts[i];
  if (rules.hosts.size() > kShown)
    hosts += " and " + std::to_string(rules.hosts.size() - kShown) + " more";
  return holds + hosts;
}

}  // namespace moorage::base
