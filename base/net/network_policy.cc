#include "base/net/network_policy.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace moorage::base {
namespace {

const std::vector<uint16_t> kUsualPorts{80, 443};

// Greater is closer. An exact host is closer than any suffix that covers it.
std::tuple<size_t, size_t, bool, bool> closeness(const NetworkRule& rule) {
  const bool exact = !rule.host.starts_with('.');
  return {rule.host.size() + (exact ? 2 : 0), rule.path.size(), !rule.methods.empty(),
          rule.verdict != Verdict::allow};
}

struct Asked {
  std::string_view host;
  uint16_t port;
  const HttpRequest* request;  // null: a connection, which a narrow rule may allow, but not refuse
};

bool speaks_of(const NetworkRule& rule, const Asked& asked) {
  if (!covers(rule, asked.host, asked.port)) return false;
  if (asked.request != nullptr) return covers(rule, *asked.request);
  return rule.verdict == Verdict::allow || !is_narrow(rule);
}

const NetworkRule* closest(const std::vector<NetworkRule>& rules, const Asked& asked) {
  const NetworkRule* best = nullptr;
  for (const NetworkRule& rule : rules) {
    if (!speaks_of(rule, asked)) continue;
    if (best == nullptr || closeness(rule) > closeness(*best)) best = &rule;
  }
  return best;
}

Decision decide_by_rules(const NetworkPolicy& policy, const Asked& asked) {
  if (const NetworkRule* rule = closest(policy.own, asked))
    return {rule->verdict, Decider::own, rule};
  if (const NetworkRule* rule = closest(policy.preset, asked))
    return {rule->verdict, Decider::preset, rule};
  const bool open = policy.open && std::ranges::count(policy.open_ports, asked.port) > 0;
  return {open ? Verdict::allow : Verdict::deny, Decider::mode, nullptr};
}

// The rules about the host of one list, the closest first, up to the first that is not narrow.
std::vector<const NetworkRule*> narrow_rules(const std::vector<NetworkRule>& rules,
                                             std::string_view host, uint16_t port,
                                             const NetworkRule*& end) {
  std::vector<const NetworkRule*> found;
  for (const NetworkRule& rule : rules) {
    if (covers(rule, host, port)) found.push_back(&rule);
  }
  std::ranges::stable_sort(found, [](const NetworkRule* one, const NetworkRule* other) {
    return closeness(*one) > closeness(*other);
  });
  const auto last =
      std::ranges::find_if(found, [](const NetworkRule* rule) { return !is_narrow(*rule); });
  end = last == found.end() ? nullptr : *last;
  found.erase(last, found.end());
  return found;
}

// The narrow rules that make a difference.
std::vector<const NetworkRule*> rules_about_requests(const NetworkPolicy& policy,
                                                     std::string_view host, uint16_t port) {
  const NetworkRule* end = nullptr;
  std::vector<const NetworkRule*> all = narrow_rules(policy.refused_by_operator, host, port, end);
  const auto add = [&all](const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const auto& list : policy.allowed_by_operator) {
    const auto narrow = narrow_rules(list, host, port, end);
    if (end == nullptr) add(narrow);
  }
  auto narrow = narrow_rules(policy.own, host, port, end);
  if (end == nullptr) {
    const auto more = narrow_rules(policy.preset, host, port, end);
    narrow.insert(narrow.end(), more.begin(), more.end());
  }
  const bool open = policy.open && std::ranges::count(policy.open_ports, port) > 0;
  const bool otherwise = end != nullptr ? end->verdict == Verdict::allow : open;
  std::erase_if(narrow, [otherwise](const NetworkRule* rule) {
    return (rule->verdict == Verdict::allow) == otherwise;
  });
  // Several may still overlap without effect; the requests are then judged for nothing.
  add(narrow);
  return all;
}

void add_ports(const std::vector<NetworkRule>& rules, std::string_view host,
               std::set<uint16_t>& ports) {
  for (const NetworkRule& rule : rules) {
    if (rule.verdict != Verdict::allow) continue;
    for (const uint16_t port : rule.ports.empty() ? kUsualPorts : rule.ports) {
      if (covers(rule, host, port)) ports.insert(port);
    }
  }
}

}  // namespace

Decision decide(const NetworkPolicy& policy, std::string_view host, uint16_t port,
                const HttpRequest* request) {
  const Asked asked{host, port, request};
  if (const NetworkRule* rule = closest(policy.refused_by_operator, asked))
    return {rule->verdict, Decider::operator_refuses, rule};
  const Decision decision = decide_by_rules(policy, asked);
  if (decision.verdict != Verdict::allow) return decision;
  const bool may_be = std::ranges::all_of(policy.allowed_by_operator, [&](const auto& list) {
    return closest(list, asked) != nullptr;
  });
  if (may_be) return decision;
  return {Verdict::deny, Decider::operator_does_not_allow, nullptr};
}

bool reaches_hosts(const NetworkPolicy& policy) {
  const auto allows = [](const NetworkRule& rule) { return rule.verdict == Verdict::allow; };
  return policy.open || std::ranges::any_of(policy.own, allows) ||
         std::ranges::any_of(policy.preset, allows);
}

bool depends_on_request(const NetworkPolicy& policy, std::string_view host, uint16_t port) {
  return !rules_about_requests(policy, host, port).empty();
}

bool depends_on_path(const NetworkPolicy& policy, std::string_view host, uint16_t port) {
  return std::ranges::any_of(rules_about_requests(policy, host, port),
                             [](const NetworkRule* rule) { return !rule->path.empty(); });
}

std::vector<uint16_t> allowed_ports(const NetworkPolicy& policy, std::string_view host) {
  std::set<uint16_t> candidates;
  add_ports(policy.own, host, candidates);
  add_ports(policy.preset, host, candidates);
  if (policy.open) candidates.insert(policy.open_ports.begin(), policy.open_ports.end());
  std::vector<uint16_t> ports;
  for (const uint16_t port : candidates) {
    if (decide(policy, host, port).verdict == Verdict::allow) ports.push_back(port);
  }
  return ports;
}

Decision decide_name(const NetworkPolicy& policy, std::string_view host) {
  return decide(policy, host, kUsualPorts[1]);
}

std::string why(const NetworkPolicy& policy, const Decision& decision) {
  const auto with_reason = [&decision](std::string text) {
    if (decision.rule == nullptr) return text;
    text += " (" + rule_text(*decision.rule) + ")";
    return decision.rule->reason.empty() ? text : text + ": " + decision.rule->reason;
  };
  switch (decision.decider) {
    case Decider::operator_refuses:
      return with_reason("the operator refuses it");
    case Decider::operator_does_not_allow:
      return "it is not in the operator's list of hosts that may be allowed";
    case Decider::own:
      return with_reason("a rule of this workspace");
    case Decider::preset:
      return with_reason("network " + policy.mode);
    case Decider::mode:
      break;
  }
  if (decision.verdict == Verdict::allow) return "network open";
  return policy.open ? "network open does not include this port" : "no rule allows it";
}

}  // namespace moorage::base
