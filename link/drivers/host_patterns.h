// Hosts as providers write them in a list of names: "web.example", "*.example.com".
#pragma once

#include <string>
#include <vector>

#include "base/net/provider_rules.h"

namespace moorage::link {

// A suffix of ours is two: the host itself, and all names below it.
std::vector<std::string> host_patterns(const base::ProviderRules& rules);

}  // namespace moorage::link
