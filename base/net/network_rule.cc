#include "base/net/network_rule.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/net/host_name.h"
#include "base/net/url_path.h"
#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr uint16_t kHttp = 80;
constexpr uint16_t kHttps = 443;
constexpr std::string_view kScheme = "https://";

bool is_usual(uint16_t port) { return port == kHttp || port == kHttps; }

uint16_t parse_port(std::string_view text, std::string_view whole) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535) {
    throw Error(Code::invalid_argument, quoted_unless_secret(whole) + " has an invalid port",
                "ports are 1 to 65535, like github.com:22");
  }
  return static_cast<uint16_t>(port);
}

// Takes the ports off a host.
std::vector<uint16_t> take_ports(std::string_view& host) {
  std::vector<uint16_t> ports;
  const std::string_view whole = host;
  const size_t colon = host.rfind(':');
  if (colon == host.npos || host.find("//") != host.npos || host.find(':') != colon) return ports;
  for (const std::string_view port : split(host.substr(colon + 1), ','))
    ports.push_back(parse_port(port, whole));
  host = host.substr(0, colon);
  return ports;
}

// Takes scheme and path off a host.
std::string take_path(std::string_view& place) {
  const std::string_view whole = place;
  place.remove_prefix(kScheme.size());
  const std::string_view path = place.substr(std::min(place.find('/'), place.size()));
  if (path.find('?') != path.npos || !is_plain_path(path)) {
    throw Error(
        Code::invalid_argument,
        quoted_unless_secret(whole) + " has a path that servers may read in more than one way",
        "like https://example.com/simple/, without '?', '..' and escapes of them");
  }
  place.remove_suffix(path.size());
  return path == "/" ? "" : usual_path(path);
}

std::string parse_host(std::string_view text, Verdict verdict) {
  const bool suffix = text.starts_with('.');
  std::string host = (suffix ? "." : "") + host_name(suffix ? text.substr(1) : text);
  if (suffix && verdict == Verdict::allow && host.rfind('.') == 0) {
    throw Error(Code::invalid_argument, "'" + host + "' covers a whole top-level domain",
                "name the domain, like .example.com, or use --network open");
  }
  return host;
}

}  // namespace

std::vector<std::string> parse_methods(std::string_view text) {
  std::vector<std::string> methods;
  for (const std::string_view method : split(text, ',')) {
    const bool fits = !method.empty() && std::ranges::all_of(method, [](char c) {
      return (c >= 'A' && c <= 'Z') || c == '-';
    });
    if (!fits || method == "TRACE" || method == "CONNECT") {
      throw Error(Code::invalid_argument, "'" + std::string(method) + "' is not a method to allow",
                  "methods of HTTP are upper-case, like GET,HEAD; TRACE and CONNECT are never "
                  "carried");
    }
    if (std::ranges::find(methods, method) == methods.end()) methods.emplace_back(method);
  }
  return methods;
}

bool has_method(const std::vector<std::string>& methods, std::string_view method) {
  const auto has = [&methods](std::string_view one) {
    return std::ranges::find(methods, one) != methods.end();
  };
  return methods.empty() || has(method) || (method == "HEAD" && has("GET"));
}

bool is_narrow(const NetworkRule& rule) { return !rule.methods.empty() || !rule.path.empty(); }

bool covers(const NetworkRule& rule, std::string_view host, uint16_t port) {
  const std::string_view pattern = rule.host;
  const bool suffix = pattern.starts_with('.');
  const bool named =
      suffix ? host == pattern.substr(1) || host.ends_with(pattern) : host == pattern;
  if (!named) return false;
  if (!rule.ports.empty()) return std::ranges::count(rule.ports, port) > 0;
  return is_usual(port) || (rule.verdict != Verdict::allow && !is_narrow(rule));
}

bool covers(const NetworkRule& rule, const HttpRequest& request) {
  if (!has_method(rule.methods, request.method)) return false;
  return rule.path.empty() || path_is_below(request.path, rule.path);
}

NetworkRule parse_rule(Verdict verdict, std::string_view text) {
  NetworkRule rule;
  rule.verdict = verdict;
  std::string_view methods = text;
  std::string_view place = take_until(methods, ' ');
  if (place.size() < text.size()) rule.methods = parse_methods(methods);
  const bool is_url = place.starts_with(kScheme);
  if (is_url) rule.path = take_path(place);
  rule.ports = take_ports(place);
  if (is_url && rule.ports.empty()) rule.ports = {kHttps};
  rule.host = parse_host(place, verdict);
  const bool judged =
      is_url ? rule.ports == std::vector{kHttps} : std::ranges::all_of(rule.ports, is_usual);
  if ((is_url || is_narrow(rule)) && !judged) {
    throw Error(Code::invalid_argument,
                quoted_unless_secret(text) + " is about requests at a port where none are read",
                "methods are judged at ports 80 and 443, paths at 443");
  }
  return rule;
}

std::string rule_text(const NetworkRule& rule) {
  std::string text = rule.path.empty() ? rule.host : std::string(kScheme) + rule.host + rule.path;
  for (size_t i = 0; i < rule.ports.size() && rule.path.empty(); ++i)
    text += (i == 0 ? ":" : ",") + std::to_string(rule.ports[i]);
  for (size_t i = 0; i < rule.methods.size(); ++i) text += (i == 0 ? " " : ",") + rule.methods[i];
  return text;
}

}  // namespace moorage::base
