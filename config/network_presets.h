// The presets that --network names: files of config/networks, each a list of hosts with a reason
// for every line. A preset may include another. Errors for unknown keys and invalid hosts give file
// and line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/network_policy.h"

namespace moorage::config {

struct NetworkPreset {
  std::string summary;  // for people, a few words
  bool open = false;    // every host, at open_ports
  std::vector<uint16_t> open_ports;
  std::vector<base::NetworkRule> rules;
};

constexpr std::string_view kNoNetwork = "none";
NetworkPreset no_network();

// By name, from all files DIRECTORY/NAME.yaml, and `none`, which cannot be a file.
// Throws invalid_argument for a wrong file, not_found without the directory.
std::map<std::string, NetworkPreset> read_network_presets(const std::string& directory);

}  // namespace moorage::config
