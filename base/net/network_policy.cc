#include "base/net/network_policy.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/net/host_name.h"
#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr uint16_t kUsualPorts[] = {80, 443};

bool matches_host(const NetworkRule& rule, std::string_view host) {
  const std::string_view pattern = rule.host;
  if (!pattern.starts_with('.')) return pattern == host;
  return host == pattern.substr(1) || host.ends_with(pattern);
}

bool matches_port(const NetworkRule& rule, uint16_t port) {
  if (!rule.ports.empty()) return std::ranges::count(rule.ports, port) > 0;
  return rule.verdict != Verdict::allow || std::ranges::count(kUsualPorts, port) > 0;
}

// Greater is closer. An exact host is closer than any suffix that covers it.
std::pair<size_t, bool> closeness(const NetworkRule& rule) {
  const bool exact = !rule.host.starts_with('.');
  return {rule.host.size() + (exact ? 2 : 0), rule.verdict != Verdict::allow};
}

const NetworkRule* closest(const std::vector<NetworkRule>& rules, std::string_view host,
                           uint16_t port) {
  const NetworkRule* best = nullptr;
  for (const NetworkRule& rule : rules) {
    if (!matches_host(rule, host) || !matches_port(rule, port)) continue;
    if (best == nullptr || closeness(rule) > closeness(*best)) best = &rule;
  }
  return best;
}

Decision decide_by_rules(const NetworkPolicy& policy, std::string_view host, uint16_t port) {
  if (const NetworkRule* rule = closest(policy.own, host, port))
    return {rule->verdict, Decider::own, rule};
  if (const NetworkRule* rule = closest(policy.preset, host, port))
    return {rule->verdict, Decider::preset, rule};
  const bool open = policy.open && std::ranges::count(policy.open_ports, port) > 0;
  return {open ? Verdict::allow : Verdict::deny, Decider::mode, nullptr};
}

void add_ports(const std::vector<NetworkRule>& rules, std::string_view host,
               std::set<uint16_t>& ports) {
  for (const NetworkRule& rule : rules) {
    if (rule.verdict != Verdict::allow || !matches_host(rule, host)) continue;
    ports.insert(rule.ports.begin(), rule.ports.end());
    if (rule.ports.empty()) ports.insert(std::begin(kUsualPorts), std::end(kUsualPorts));
  }
}

uint16_t parse_port(std::string_view text, std::string_view whole) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535) {
    throw Error(Code::invalid_argument, "'" + std::string(whole) + "' has an invalid port",
                "ports are 1 to 65535, like github.com:22");
  }
  return static_cast<uint16_t>(port);
}

}  // namespace

Decision decide(const NetworkPolicy& policy, std::string_view host, uint16_t port) {
  if (const NetworkRule* rule = closest(policy.refused_by_operator, host, port))
    return {rule->verdict, Decider::operator_refuses, rule};
  const Decision decision = decide_by_rules(policy, host, port);
  if (decision.verdict != Verdict::allow) return decision;
  const bool may_be = std::ranges::all_of(policy.allowed_by_operator, [&](const auto& list) {
    return closest(list, host, port) != nullptr;
  });
  if (may_be) return decision;
  return {Verdict::deny, Decider::operator_does_not_allow, nullptr};
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

NetworkRule parse_rule(Verdict verdict, std::string_view text) {
  NetworkRule rule{verdict, {}, {}, {}};
  std::string_view host = text;
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && text.find("//") == std::string_view::npos &&
      text.find(':') == colon) {
    host = text.substr(0, colon);
    for (const std::string_view port : split(text.substr(colon + 1), ','))
      rule.ports.push_back(parse_port(port, text));
  }
  const bool suffix = host.starts_with('.');
  rule.host = (suffix ? "." : "") + host_name(suffix ? host.substr(1) : host);
  if (suffix && verdict == Verdict::allow && rule.host.rfind('.') == 0) {
    throw Error(Code::invalid_argument, "'" + rule.host + "' covers a whole top-level domain",
                "name the domain, like .example.com, or use --network open");
  }
  return rule;
}

std::string rule_text(const NetworkRule& rule) {
  std::string text = rule.host;
  for (size_t i = 0; i < rule.ports.size(); ++i)
    text += (i == 0 ? ":" : ",") + std::to_string(rule.ports[i]);
  return text;
}

}  // namespace moorage::base
