// From a workspace's policy and the host's configuration to what its moorage-egress obeys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/net/network_policy.h"
#include "base/net/network_settings.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

struct NetworkPreset {
  std::string summary;
  bool open = false;
  std::vector<uint16_t> open_ports;
  std::vector<base::NetworkRule> rules;
};

// The host's configuration.
struct NetworkOptions {
  std::map<std::string, NetworkPreset> presets{{"none", {}}};  // by name
  std::vector<std::string> resolvers;                          // empty: those of /etc/resolv.conf
  std::vector<std::string> reachable;  // ranges that may be dialled though not public
  std::string proxy_host;              // empty: none
  uint16_t proxy_port = 0;
  std::string proxy_authorization;
  std::vector<std::string> no_proxy;
  base::NetworkLimits limits;
  std::string egress_program;  // moorage-egress
};

// How a policy's word is written: "allow github.com:22" and so on.
base::NetworkRule parse_network_rule(const std::string& word);
std::string network_rule_word(const base::NetworkRule& rule);

// Throws not_found for a preset that no longer exists.
base::NetworkPolicy network_policy(const state_db::WorkspaceRow& row, const Context& context,
                                   const NetworkOptions& network);
// Changes when the host's addresses, resolv.conf or hosts file do.
std::string stamp_of_host();
// Reads the host's resolv.conf and hosts file, and resolves the proxy; may block for that.
base::NetworkSettings network_settings(const state_db::WorkspaceRow& row, const Context& context,
                                       const NetworkOptions& network);

}  // namespace moorage::workspace
