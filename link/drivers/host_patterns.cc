#include "link/drivers/host_patterns.h"

namespace moorage::link {

std::vector<std::string> host_patterns(const base::ProviderRules& rules) {
  std::vector<std::string> patterns;
  for (const std::string& host : rules.hosts) {
    const bool suffix = host.starts_with('.');
    patterns.push_back(suffix ? host.substr(1) : host);
    if (suffix) patterns.push_back("*" + host);
  }
  return patterns;
}

}  // namespace moorage::link
