// What a sandbox may reach: a mode, the workspace's own rules, the rules of a preset, and the
// limits that the operator sets. `decide` is the only judge: moorage-egress asks it for each name
// and each connection, and `moorage net check` prints its answer.
//
// The order of judgement, the first that speaks decides:
//  1. the operator's refusals, then, for a host to be allowed, each of the operator's lists of what
//     may be
//  2. the workspace's own rules    3. the preset's    4. the mode: `open` allows, the others refuse
// Within 2 and 3 the closest rule decides: the host itself before ".example.com", a longer suffix
// before a shorter one, a longer path before a shorter one, methods before none; of two equally
// close ones the refusal.
//
// A rule that names ports, methods or a path speaks of those only, so rules that allow add up: GET
// to the host of one rule is allowed beside everything that another rule allows there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/network_rule.h"

namespace moorage::base {

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

// `host` in the spelling of host_name.h. Without a request: whether any may be allowed, so that
// the host can be connected to.
Decision decide(const NetworkPolicy& policy, std::string_view host, uint16_t port,
                const HttpRequest* request = nullptr);

// Whether it may allow anything at all.
bool reaches_hosts(const NetworkPolicy& policy);

// For a host that may be connected to: whether some requests to it are refused, and others not.
bool depends_on_request(const NetworkPolicy& policy, std::string_view host, uint16_t port);
// Whether that may depend on its path.
bool depends_on_path(const NetworkPolicy& policy, std::string_view host, uint16_t port);

// All ports at which the host may be reached, ascending. Empty: the name is refused.
std::vector<uint16_t> allowed_ports(const NetworkPolicy& policy, std::string_view host);
// For a name that is refused at every port.
Decision decide_name(const NetworkPolicy& policy, std::string_view host);

// Why, in words for people: "no rule allows it", "preset packages: npm's registry".
std::string why(const NetworkPolicy& policy, const Decision& decision);

}  // namespace moorage::base
