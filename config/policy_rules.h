// Parses the section `policy`: rules on where workspaces may run and how much they may use. For
// their meaning see workspace/access/placement.h. Rules exist only in the file, never in variables
// or
// --set. Unknown keys, rules without effect and contradictory rules are refused with file, line and
// column.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/net/network_policy.h"

namespace moorage::config {

struct YamlNode;

struct PolicyLimits {
  std::optional<uint64_t> memory_bytes{};
  std::optional<double> cpus{};
  std::optional<uint32_t> pids{};
  std::optional<uint64_t> disk_bytes{};
  bool operator==(const PolicyLimits&) const = default;
};

struct PolicyRule {
  std::string place{};                          // "FILE:LINE"
  std::string text{};                           // as in the file, on one line
  std::vector<uint32_t> users{};                // owners; empty: all
  std::vector<uint32_t> groups{};               // any of the owner's; empty: all
  std::map<std::string, std::string> labels{};  // all of these must match; empty: any
  std::vector<std::string> backends{};          // empty: no restriction
  std::string min_isolation{};    // none, container, userns, gvisor, vm; empty: no restriction
  std::string default_backend{};  // of new workspaces that name none; empty: none
  std::string default_runtime{};  // of that backend
  std::string default_image{};
  std::string default_network{};
  std::vector<std::string> networks{};            // empty: no restriction
  std::vector<base::NetworkRule> hosts{};         // only these may be allowed; empty: any
  std::vector<base::NetworkRule> refuse_hosts{};  // never
  PolicyLimits usual{};                           // `default`
  PolicyLimits most{};                            // `max`
};

// Returns the rules in order. `file` is for messages.
std::vector<PolicyRule> read_policy(const std::string& file, const YamlNode& section);

}  // namespace moorage::config
