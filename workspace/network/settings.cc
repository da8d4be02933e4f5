#include "workspace/network/settings.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <memory>
#include <set>

#include "base/error.h"
#include "base/net/host_name.h"
#include "base/net/ip_address.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "workspace/access/placement.h"
#include "workspace/context/credentials.h"
#include "workspace/network/push_judge.h"

namespace moorage::workspace {
namespace {

using base::Verdict;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxHosts = 10'000;
constexpr std::string_view kVerdicts[] = {"allow", "deny", "deny_quietly"};

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::string_view rest = line.substr(0, line.find('#')); !rest.empty();) {
    const size_t begin = rest.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) break;
    rest.remove_prefix(begin);
    const size_t end = std::min(rest.find_first_of(" \t\r"), rest.size());
    words.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return words;
}

// Calls take(words) for each line of a file of the host; a missing file has none.
template <typename Take>
void each_line(const std::string& path, const Take& take) {
  const auto text = base::read_file_if_exists(path, kMaxFileBytes);
  if (!text) return;
  for (const std::string_view line : base::split(*text, '\n')) {
    const auto words = words_of(line);
    if (words.size() > 1) take(words);
  }
}

std::vector<std::string> host_resolvers() {
  std::vector<std::string> servers;
  each_line("/etc/resolv.conf", [&servers](const auto& words) {
    if (words[0] != "nameserver" || !base::parse_address(words[1])) return;
    const bool v6 = words[1].find(':') != std::string::npos;
    servers.push_back(v6 ? "[" + words[1] + "]" : words[1]);
  });
  return servers;
}

// Without loopback entries: "localhost" and the host's own name are not for sandboxes.
std::map<std::string, std::vector<std::string>> host_table() {
  std::map<std::string, std::vector<std::string>> hosts;
  each_line("/etc/hosts", [&hosts](const auto& words) {
    const auto address = base::parse_address(words[0]);
    if (!address || base::not_public(*address).find("loopback") != std::string_view::npos) return;
    for (size_t i = 1; i < words.size() && hosts.size() < kMaxHosts; ++i) {
      if (const auto name = base::host_name_on_wire(words[i])) hosts[*name].push_back(words[0]);
    }
  });
  return hosts;
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  const int status = getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(raw, freeaddrinfo);
  if (status != 0) {
    throw Error(Code::unavailable,
                "the proxy " + host + " cannot be resolved: " + gai_strerror(status));
  }
  std::vector<std::string> addresses;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    if (const auto address = base::address_of(*one->ai_addr)) addresses.push_back(address->str());
  }
  return addresses;
}

std::vector<std::string> addresses_of_host() {
  ifaddrs* raw = nullptr;
  base::check(getifaddrs(&raw), "list the addresses of this host");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (const auto address = base::address_of(*one->ifa_addr)) addresses.push_back(address->str());
  }
  return addresses;
}

}  // namespace

std::string stamp_of_host() {
  std::string stamp;
  for (const std::string& address : addresses_of_host()) stamp += address + " ";
  for (const char* path : {"/etc/resolv.conf", "/etc/hosts"}) {
    struct stat found {};
    if (stat(path, &found) == 0) {
      stamp += std::to_string(found.st_ino) + " " + std::to_string(found.st_size) + " " +
               std::to_string(found.st_mtim.tv_sec) + "." + std::to_string(found.st_mtim.tv_nsec);
    }
    stamp += "\n";
  }
  return stamp;
}

base::NetworkRule parse_network_rule(const std::string& word) {
  std::string_view rest = word;
  const std::string_view verdict = base::take_until(rest, ' ');
  for (const Verdict one : {Verdict::allow, Verdict::deny, Verdict::deny_quietly}) {
    if (verdict == kVerdicts[static_cast<size_t>(one)]) return base::parse_rule(one, rest);
  }
  throw Error(Code::invalid_argument, "'" + word + "' is not a network rule",
              "write it like: allow github.com:22");
}

std::string network_rule_word(const base::NetworkRule& rule) {
  return std::string(kVerdicts[static_cast<size_t>(rule.verdict)]) + " " + base::rule_text(rule);
}

base::NetworkPolicy network_policy(const state_db::WorkspaceRow& row, const Context& context,
                                   const NetworkOptions& network) {
  base::NetworkPolicy policy;
  const Placement placement(context, row);
  policy.mode = placement.network_or(row.policy.network);
  const auto preset = network.presets.find(policy.mode);
  if (preset == network.presets.end()) {
    throw Error(Code::not_found, "there is no network '" + policy.mode + "'",
                "choose another: moorage set " + row.name + " --network none");
  }
  policy.open = preset->second.open;
  policy.open_ports = preset->second.open_ports;
  policy.preset = preset->second.rules;
  for (const std::string& word : row.policy.network_rules)
    policy.own.push_back(parse_network_rule(word));
  placement.restrict_hosts(policy);
  return policy;
}

base::NetworkSettings network_settings(const state_db::WorkspaceRow& row, const Context& context,
                                       const NetworkOptions& network) {
  base::NetworkSettings settings;
  settings.workspace = row.name;
  settings.policy = network_policy(row, context, network);
  settings.credentials = scopes_of(credentials_of(context.store, row));
  settings.push = push_policy(row.policy);
  settings.resolver.servers = network.resolvers.empty() ? host_resolvers() : network.resolvers;
  settings.resolver.hosts = host_table();
  settings.resolver.host = addresses_of_host();
  settings.resolver.reachable = network.reachable;
  settings.limits = network.limits;
  if (!network.proxy_host.empty()) {
    settings.proxy = base::ProxySettings{addresses_of(network.proxy_host), network.proxy_port,
                                         network.proxy_authorization, network.no_proxy};
  }
  return settings;
}

}  // namespace moorage::workspace
