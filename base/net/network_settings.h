// What the daemon tells the moorage-egress of a sandbox, and what it reports, as JSON. Read
// strictly: a member more or less is an error, so that two releases that differ refuse rather than
// let something pass.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/network_policy.h"
#include "base/net/push_policy.h"
#include "base/net/request_policy.h"

namespace moorage::base {

struct ResolverSettings {
  std::vector<std::string> servers;                       // "192.0.2.53", "[2001:db8::53]:5353"
  std::map<std::string, std::vector<std::string>> hosts;  // the host's table: name, addresses
  std::vector<std::string> host;  // addresses of the host itself: never dialled unless reachable
  std::vector<std::string> reachable;  // ranges that may be dialled though they are not public
};

// A proxy of the company's network, through which alone hosts outside can be reached.
struct ProxySettings {
  std::vector<std::string> addresses;
  uint16_t port = 0;
  std::string authorization;          // of the header Proxy-Authorization; may be empty
  std::vector<std::string> no_proxy;  // hosts that are dialled directly, as in rules
};

struct NetworkLimits {
  uint32_t connections = 512;  // open at once
  uint64_t rate_bytes = 0;     // per second, both directions together; 0: no limit
  uint64_t total_bytes = 0;    // while the sandbox runs; 0: no limit
};

struct NetworkSettings {
  std::string workspace;  // its name, for messages
  NetworkPolicy policy;
  std::vector<CredentialScope> credentials;
  PushPolicy push;
  ResolverSettings resolver;
  std::optional<ProxySettings> proxy;
  NetworkLimits limits;
};

struct NetworkUse {
  uint32_t connections = 0;  // open now
  uint64_t connected = 0;    // all so far
  uint64_t names = 0;        // that have an address inside
  uint64_t bytes_in = 0;     // to the sandbox
  uint64_t bytes_out = 0;
  uint64_t refused = 0;     // names and connections that the policy refused
  uint64_t over_limit = 0;  // connections that a limit refused
};

enum class SightingKind { reached, refused, unreachable };

// A command tried to reach a host; the first time with this outcome.
struct Sighting {
  uint64_t serial = 0;  // 1, 2, 3...
  SightingKind kind = SightingKind::refused;
  std::string host;   // empty: it tried too many to note them all
  uint16_t port = 0;  // 0: the name itself
  std::string why;
  bool quiet = false;   // a rule says that nobody need hear of it
  uint64_t cgroup = 0;  // the kernel's id of the command's control group; 0: not known
  int64_t at_ms = 0;    // wall clock
};

std::string to_json(const NetworkSettings& settings);
std::string to_json(const NetworkUse& use);
std::string to_json(const Sighting& sighting);
std::string to_json(const std::vector<Sighting>& sightings);
// Throw invalid_argument.
NetworkSettings read_network_settings(std::string_view json);
NetworkUse read_network_use(std::string_view json);
Sighting read_sighting(std::string_view json);
std::vector<Sighting> read_sightings(std::string_view json);

}  // namespace moorage::base
