// Settings network.*: what a sandbox may reach unless its policy says otherwise, and how the host
// reaches it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moorage::config {

struct NetworkSettings {
  std::string mode = "none";             // none, or the name of a preset
  std::string presets_directory{};       // empty: those of this release
  std::vector<std::string> resolvers{};  // empty: those of /etc/resolv.conf
  std::vector<std::string> reachable{};  // ranges that may be reached though not public
  std::string proxy{};                   // http://host:port; empty: none
  std::string proxy_authorization_file{};
  std::vector<std::string> no_proxy{};
  std::string ca_file{};  // certificates of own authorities, shown in sandboxes; empty: none
  // Opens what `moorage credential add --from-stdin` sealed; made if it is missing.
  std::string credential_key = "/etc/moorage/credentials.key";
  uint32_t max_connections = 512;
  uint64_t rate_bytes = 0;   // per second; 0: no limit
  uint64_t total_bytes = 0;  // while a sandbox runs; 0: no limit
};

}  // namespace moorage::config
