#include "base/net/provider_rules.h"

#include <catch2/catch.hpp>

using namespace moorage;
using base::NetworkPolicy;
using base::ProviderRules;
using base::Verdict;

namespace {

NetworkPolicy allowing(const std::vector<std::string>& rules) {
  NetworkPolicy policy;
  for (const std::string& rule : rules)
    policy.own.push_back(base::parse_rule(Verdict::allow, rule));
  return policy;
}

ProviderRules held(const NetworkPolicy& policy) { return base::provider_rules("web", policy, {}); }

std::string refusal(const NetworkPolicy& policy) {
  const ProviderRules rules = held(policy);
  CHECK(rules.hosts.empty());
  CHECK(rules.hint.empty() == rules.refusal.empty());
  return rules.refusal;
}

}  // namespace

TEST_CASE("a provider holds names that are allowed at the usual ports", "[base][network]") {
  CHECK(held({}).refusal.empty());
  CHECK(held({}).hosts.empty());
  NetworkPolicy policy = allowing({"web.example", ".other.example", "web.example:80,443"});
  policy.preset.push_back(base::parse_rule(Verdict::allow, "preset.example"));
  policy.preset.push_back(base::parse_rule(Verdict::deny_quietly, "telemetry.example"));
  CHECK(held(policy).refusal.empty());
  CHECK(held(policy).hosts ==
        std::vector<std::string>{"web.example", ".other.example", "preset.example"});
  CHECK(base::provider_rules_text(held(policy)) ==
        "held by the provider: web.example, .other.example, preset.example");
  CHECK(base::provider_rules_text(held({})) == "held by the provider: no host");
}

TEST_CASE("a rule that a provider cannot hold is refused with its reason", "[base][network]") {
  CHECK(refusal(allowing({"web.example:22"})) ==
        "the rule 'web.example:22' is about ports, and a provider holds names only");
  CHECK(refusal(allowing({"web.example:443"})).find("about ports") != std::string::npos);
  CHECK(refusal(allowing({"web.example GET"})) ==
        "the rule 'web.example GET' is about requests, and a provider sees none");
  CHECK(refusal(allowing({"https://web.example/a"})).find("requests") != std::string::npos);
  NetworkPolicy open;
  open.mode = "open";
  open.open = true;
  open.open_ports = {80, 443};
  CHECK(refusal(open) == "network open is about ports, and a provider holds names only");
}

TEST_CASE("a name that a closer rule refuses is not let out", "[base][network]") {
  NetworkPolicy policy = allowing({"web.example"});
  policy.refused_by_operator.push_back(base::parse_rule(Verdict::deny, "web.example"));
  CHECK(refusal(policy).empty());  // it is refused here, too
  policy = allowing({".web.example"});
  policy.own.push_back(base::parse_rule(Verdict::deny, "inner.web.example"));
  CHECK(refusal(policy) == "the rule '.web.example' has the exception 'inner.web.example'");
  policy.own.back() = base::parse_rule(Verdict::deny, ".other.example");
  CHECK(held(policy).hosts == std::vector<std::string>{".web.example"});
  policy = allowing({"web.example"});
  policy.own.push_back(base::parse_rule(Verdict::deny, "web.example POST"));
  CHECK(refusal(policy).find("some requests only") != std::string::npos);
}

TEST_CASE("an administrator's list of hosts narrows what a provider lets out", "[base][network]") {
  NetworkPolicy policy = allowing({"web.example", "other.example"});
  policy.allowed_by_operator.push_back({base::parse_rule(Verdict::allow, "web.example")});
  CHECK(held(policy).hosts == std::vector<std::string>{"web.example"});
  policy = allowing({".web.example"});
  policy.allowed_by_operator.push_back({base::parse_rule(Verdict::allow, "web.example")});
  CHECK(refusal(policy) == "the rule '.web.example' is limited by the administrator of this host");
}

TEST_CASE("a credential for a host that is let out is refused", "[base][network]") {
  base::CredentialScope scope = base::parse_scope("https://api.example/");
  scope.credential = "key";
  CHECK(base::provider_rules("web", allowing({"web.example"}), {scope}).refusal.empty());
  const ProviderRules rules = base::provider_rules("web", allowing({"api.example"}), {scope});
  CHECK(rules.refusal == "the credential key for api.example would have to be there");
  CHECK(rules.hosts.empty());
}
