#include "workspace/verbs/rule_change.h"

#include <algorithm>

#include "base/error.h"
#include "base/net/network_rule.h"
#include "workspace/network/settings.h"

namespace moorage::workspace {
namespace {

using base::NetworkRule;
using base::Verdict;

constexpr size_t kMaxRules = 1000;

bool allows(const NetworkRule& rule) { return rule.verdict == Verdict::allow; }

bool is_about_the_same(const NetworkRule& one, const NetworkRule& other) {
  return one.host == other.host && one.path == other.path;
}

// Returns whether there were any.
bool remove_methods(NetworkRule& from, const NetworkRule& named) {
  return std::erase_if(from.methods, [&named](const std::string& method) {
           return std::ranges::find(named.methods, method) != named.methods.end();
         }) > 0;
}

// Takes out of a rule that opposes what the added one says. Returns whether it still says anything.
bool give_way(NetworkRule& old, const NetworkRule& added, bool& lifted) {
  if (!is_narrow(added)) return false;
  if (!is_about_the_same(old, added)) return true;
  if (added.methods.empty()) return !is_narrow(old);
  if (old.methods.empty()) return true;  // the added one is closer
  lifted = remove_methods(old, added) || lifted;
  return !old.methods.empty();
}

// The added rule takes over the methods of a like one, widens it, or limits it, unless it only
// takes a refusal back.
void add(std::vector<NetworkRule>& rules, NetworkRule added) {
  bool lifted = false;
  std::erase_if(rules, [&](const NetworkRule& old) {
    return old.host == added.host && !is_narrow(added) && !allows(added);
  });
  std::vector<NetworkRule> kept;
  for (NetworkRule& old : rules) {
    const bool opposes = old.host == added.host && allows(old) != allows(added);
    if (!opposes || give_way(old, added, lifted)) kept.push_back(std::move(old));
  }
  rules.clear();
  for (NetworkRule& old : kept) {
    const bool alike =
        is_about_the_same(old, added) && allows(old) == allows(added) && old.ports == added.ports;
    if (alike && old.methods.empty() && lifted) added = old;
    if (!alike) {
      rules.push_back(std::move(old));
    } else if (!old.methods.empty() && !added.methods.empty()) {
      remove_methods(old, added);
      added.methods.insert(added.methods.begin(), old.methods.begin(), old.methods.end());
    }
  }
  rules.push_back(std::move(added));
}

void forget(std::vector<NetworkRule>& rules, const std::string& text) {
  const NetworkRule named = base::parse_rule(Verdict::deny, text);
  const size_t count = std::erase_if(rules, [&named](const NetworkRule& rule) {
    return rule.host == named.host && (named.path.empty() || rule.path == named.path) &&
           (named.methods.empty() || rule.methods == named.methods);
  });
  if (count == 0) throw Error(Code::not_found, "there is no rule for " + rule_text(named));
}

}  // namespace

void check_rules(const RuleChange& change) {
  for (const std::string& host : change.allow) base::parse_rule(Verdict::allow, host);
  for (const auto* hosts : {&change.deny, &change.forget}) {
    for (const std::string& host : *hosts) base::parse_rule(Verdict::deny, host);
  }
}

void apply_rules(const RuleChange& change, std::vector<std::string>& words) {
  std::vector<NetworkRule> rules;
  for (const std::string& word : words) rules.push_back(parse_network_rule(word));
  for (const std::string& host : change.forget) forget(rules, host);
  for (const std::string& host : change.allow) add(rules, base::parse_rule(Verdict::allow, host));
  for (const std::string& host : change.deny) add(rules, base::parse_rule(Verdict::deny, host));
  if (rules.size() > kMaxRules)
    throw Error(Code::resource_exhausted, "a workspace has at most 1,000 network rules");
  words.clear();
  for (const NetworkRule& rule : rules) words.push_back(network_rule_word(rule));
}

}  // namespace moorage::workspace
