// What a sandbox may reach: a mode, the workspace's own rules, the rules of a preset, and the
// limits that the operator sets. `decide` is the only judge: moorage-egress asks it for each name
// and each connection, and `moorage net check` prints its answer.
//
// The order of judgement, the first that speaks decides:
//  1. the operator's refusals, then, for a host to be allowed, each of the operator's lists of what
//     may be
//  2. the workspace's own rules    3. the preset's    4. the mode: `open` allows, the others refuse
// Within 2 and 3 the closest rule decides: the host itself before ".example.com", a longer suffix
// before a shorter one; of two equally close ones the refusal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

enum class Verdict {
  allow,
  deny,
  deny_quietly,  // refused without a message: telemetry that programs do without
};

struct NetworkRule {
  Verdict verdict = Verdict::allow;
  // In the spelling of host_name.h. With a dot in front: this host and all names below it.
  std::string host;
  std::vector<uint16_t> ports;  // empty: 80 and 443 to allow, every port to refuse
  std::string reason;           // for people
  // Of HTTP, to which an allowed host is limited at port 443; empty: any bytes may pass.
  std::vector<std::string> methods = {};
};

struct NetworkPolicy {
  std::string mode = "none";  // or the name of the preset
  bool open = false;          // allows what no rule refuses
  std::vector<uint16_t> open_ports;
  std::vector<NetworkRule> refused_by_operator;
  std::vector<std::vector<NetworkRule>> allowed_by_operator;  // none: everything may be allowed
  std::vector<NetworkRule> own;
  std::vector<NetworkRule> preset;
};

enum class Decider { operator_refuses, operator_does_not_allow, own, preset, mode };

struct Decision {
  Verdict verdict = Verdict::deny;
  Decider decider = Decider::mode;
  const NetworkRule* rule = nullptr;  // in the policy; null if no rule spoke
};

// `host` in the spelling of host_name.h.
Decision decide(const NetworkPolicy& policy, std::string_view host, uint16_t port);

// All ports at which the host may be reached, ascending. Empty: the name is refused.
std::vector<uint16_t> allowed_ports(const NetworkPolicy& policy, std::string_view host);
// For a name that is refused at every port.
Decision decide_name(const NetworkPolicy& policy, std::string_view host);

// Why, in words for people: "no rule allows it", "preset packages: npm's registry".
std::string why(const NetworkPolicy& policy, const Decision& decision);

// "github.com", ".example.com:8443", "db.example.com:5432,5433". Throws invalid_argument. Refuses a
// suffix of one part (".com").
NetworkRule parse_rule(Verdict verdict, std::string_view text);
// As parse_rule reads it.
std::string rule_text(const NetworkRule& rule);

}  // namespace moorage::base
