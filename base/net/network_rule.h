// One rule about hosts, and perhaps about requests to them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

enum class Verdict {
  allow,
  deny,
  deny_quietly,  // refused without a message: telemetry that programs do without
};

struct NetworkRule {
  Verdict verdict = Verdict::allow;
  // In the spelling of host_name.h. With a dot in front: this host and all names below it.
  std::string host;
  std::vector<uint16_t> ports;  // empty: 80 and 443 to allow, every port to refuse
  std::string reason;           // for people
  // Narrow it to requests of HTTP, at ports 80 and 443. Empty: all.
  std::vector<std::string> methods = {};
  std::string path = {};  // it and all below it, over https; in the spelling of usual_path()
};

// What a program asks of a host.
struct HttpRequest {
  std::string_view method;
  std::string_view path;  // in the spelling of usual_path(), without a query
};

// Of no methods: all. GET includes HEAD.
bool has_method(const std::vector<std::string>& methods, std::string_view method);
// Whether it is about some requests only.
bool is_narrow(const NetworkRule& rule);
bool covers(const NetworkRule& rule, std::string_view host, uint16_t port);
bool covers(const NetworkRule& rule, const HttpRequest& request);

// "github.com", ".example.com:8443", "db.example.com:5432,5433", "packages.example.com GET,HEAD",
// "https://example.com/simple/ GET". Throws invalid_argument. Refuses a suffix of one part
// (".com").
NetworkRule parse_rule(Verdict verdict, std::string_view text);
// As parse_rule reads it.
std::string rule_text(const NetworkRule& rule);
// "GET,HEAD". Throws invalid_argument.
std::vector<std::string> parse_methods(std::string_view text);

}  // namespace moorage::base
