#include "base/net/network_policy.h"

#include <catch2/catch.hpp>

#include "base/net/host_name.h"
#include "base/net/request_policy.h"
#include "thrown_code.h"

using namespace moorage;
using base::allowed_ports;
using base::decide;
using base::Decider;
using base::NetworkPolicy;
using base::parse_rule;
using base::Verdict;

namespace {

using Ports = std::vector<uint16_t>;

NetworkPolicy allowing(const std::vector<std::string>& hosts) {
  NetworkPolicy policy;
  for (const std::string& host : hosts) policy.own.push_back(parse_rule(Verdict::allow, host));
  return policy;
}

bool passes(const NetworkPolicy& policy, const std::string& host, uint16_t port = 443) {
  return decide(policy, host, port).verdict == Verdict::allow;
}

}  // namespace

TEST_CASE("without a rule nothing passes") {
  const NetworkPolicy none;
  CHECK_FALSE(passes(none, "github.com"));
  CHECK(allowed_ports(none, "github.com").empty());
  CHECK(decide(none, "github.com", 443).decider == Decider::mode);
}

TEST_CASE("a rule allows its host at 80 and 443, or at the ports it names") {
  const NetworkPolicy policy = allowing({"github.com", "db.example.com:5432,5433"});
  CHECK(allowed_ports(policy, "github.com") == Ports{80, 443});
  CHECK(allowed_ports(policy, "db.example.com") == Ports{5432, 5433});
  CHECK_FALSE(passes(policy, "github.com", 22));
  CHECK_FALSE(passes(policy, "db.example.com", 443));
}

TEST_CASE("a suffix covers the host and all below it, and nothing that only ends alike") {
  const NetworkPolicy policy = allowing({".github.com"});
  for (const char* host : {"github.com", "api.github.com", "a.b.c.github.com"}) {
    INFO(host);
    CHECK(passes(policy, host));
  }
  for (const char* host : {"evilgithub.com", "github.com.evil.org", "github.co", "hub.com", "com",
                           "xgithub.com", "github-com", "github.com-evil.org"}) {
    INFO(host);
    CHECK_FALSE(passes(policy, host));
  }
}

TEST_CASE("the closest rule decides, and of two equally close ones the refusal") {
  NetworkPolicy policy = allowing({".example.com", "bad.example.com:22"});
  policy.own.push_back(parse_rule(Verdict::deny, "bad.example.com"));
  policy.own.push_back(parse_rule(Verdict::deny, ".deep.example.com"));
  policy.own.push_back(parse_rule(Verdict::allow, "good.deep.example.com"));
  CHECK(passes(policy, "a.example.com"));
  CHECK_FALSE(passes(policy, "bad.example.com"));
  CHECK_FALSE(passes(policy, "bad.example.com", 22));
  CHECK_FALSE(passes(policy, "a.deep.example.com"));
  CHECK(passes(policy, "good.deep.example.com"));
}

TEST_CASE("the workspace's rules come before the preset's") {
  NetworkPolicy policy;
  policy.preset = {parse_rule(Verdict::deny_quietly, "telemetry.example.com"),
                   parse_rule(Verdict::allow, ".example.com")};
  CHECK(decide(policy, "telemetry.example.com", 443).verdict == Verdict::deny_quietly);
  policy.own = {parse_rule(Verdict::allow, "telemetry.example.com"),
                parse_rule(Verdict::deny, "www.example.com")};
  CHECK(passes(policy, "telemetry.example.com"));
  CHECK_FALSE(passes(policy, "www.example.com"));
  CHECK(decide(policy, "a.example.com", 443).decider == Decider::preset);
}

TEST_CASE("open allows every name at its ports, except what a rule refuses") {
  NetworkPolicy policy;
  policy.open = true;
  policy.open_ports = {22, 80, 443};
  policy.own = {parse_rule(Verdict::deny, ".evil.org"), parse_rule(Verdict::allow, "db.org:5432")};
  CHECK(allowed_ports(policy, "anything.net") == Ports{22, 80, 443});
  CHECK(allowed_ports(policy, "db.org") == Ports{22, 80, 443, 5432});
  CHECK(allowed_ports(policy, "www.evil.org").empty());
  CHECK_FALSE(passes(policy, "anything.net", 25));
}

TEST_CASE("nobody passes the operator's limits") {
  NetworkPolicy policy = allowing({".example.com", "other.org"});
  policy.refused_by_operator = {parse_rule(Verdict::deny, "secret.example.com")};
  CHECK_FALSE(passes(policy, "secret.example.com"));
  CHECK(decide(policy, "secret.example.com", 443).decider == Decider::operator_refuses);
  CHECK(passes(policy, "other.org"));
  policy.allowed_by_operator = {{parse_rule(Verdict::allow, ".example.com")}};
  CHECK(passes(policy, "www.example.com"));
  CHECK_FALSE(passes(policy, "other.org"));
  CHECK(decide(policy, "other.org", 443).decider == Decider::operator_does_not_allow);
  policy.open = true;
  policy.open_ports = {443};
  CHECK_FALSE(passes(policy, "anything.net"));
  // Several lists: a host must be in all of them.
  policy.allowed_by_operator.push_back({parse_rule(Verdict::allow, "api.example.com")});
  CHECK(passes(policy, "api.example.com"));
  CHECK_FALSE(passes(policy, "www.example.com"));
}

TEST_CASE("rules are written as host, suffix and ports") {
  for (const char* text : {"github.com", ".github.com", "github.com:22", ".example.com:22,8443"})
    CHECK(base::rule_text(parse_rule(Verdict::allow, text)) == text);
  CHECK(parse_rule(Verdict::allow, "GitHub.com.:22").host == "github.com");
  for (const char* text :
       {"", ".", ":443", "github.com:", "github.com:0", "github.com:65536", "github.com:x",
        "github.com:22,", "github.com:22:23", "http://github.com", "*.github.com", "..github.com",
        ".com", "1.2.3.4", "1.2.3.4:443", "[::1]:443", "user@github.com", "github.com/path"}) {
    INFO(text);
    CHECK(code_thrown_by([&] { parse_rule(Verdict::allow, text); }) == Code::invalid_argument);
  }
  CHECK(parse_rule(Verdict::deny, ".com").host == ".com");
}

TEST_CASE("a rule may name methods and a path") {
  for (const char* text : {"a.com GET", "a.com GET,POST", ".a.com:443 GET", "https://a.com/simple/",
                           "https://.a.com/x PUT,DELETE"})
    CHECK(base::rule_text(parse_rule(Verdict::allow, text)) == text);
  CHECK(base::rule_text(parse_rule(Verdict::allow, "https://a.com/")) == "a.com:443");
  CHECK(base::rule_text(parse_rule(Verdict::allow, "https://a.com:443/%61%2a GET,GET")) ==
        "https://a.com/a%2A GET");
  for (const char* text :
       {"a.com get", "a.com ", "a.com GET,", "a.com GET POST", "a.com TRACE", "a.com:22 GET",
        "a.com:80,8080 GET", "https://a.com:80/x", "https://a.com/a/../b", "https://a.com/a%2fb",
        "https://a.com//", "https://a.com/x?y", "http://a.com/x", "a.com/x GET"}) {
    INFO(text);
    CHECK(code_thrown_by([&] { parse_rule(Verdict::allow, text); }) == Code::invalid_argument);
  }
}

TEST_CASE("rules about requests add up, and the closest refusal counts") {
  NetworkPolicy policy = allowing({"a.com GET", "https://a.com/upload/ POST", "b.com"});
  policy.own.push_back(parse_rule(Verdict::deny, "b.com POST"));
  policy.own.push_back(parse_rule(Verdict::deny, "c.com"));
  policy.own.push_back(parse_rule(Verdict::allow, "c.com GET"));
  policy.preset = {parse_rule(Verdict::allow, ".a.com PUT"),
                   parse_rule(Verdict::allow, "d.com GET"), parse_rule(Verdict::allow, ".d.com")};
  const auto may = [&](const char* host, const char* method, const char* path = "/",
                       uint16_t port = 443) {
    const base::HttpRequest request{method, path};
    return decide(policy, host, port, &request).verdict == Verdict::allow;
  };
  CHECK(may("a.com", "GET"));
  CHECK(may("a.com", "HEAD"));
  CHECK(may("a.com", "GET", "/", 80));
  CHECK(may("a.com", "PUT"));
  CHECK_FALSE(may("a.com", "POST"));
  CHECK_FALSE(may("a.com", "DELETE"));
  CHECK(may("a.com", "POST", "/upload/x"));
  CHECK_FALSE(may("a.com", "POST", "/upload"));
  CHECK_FALSE(may("a.com", "POST", "/uploads/x"));
  CHECK_FALSE(may("a.com", "POST", "/upload/x", 80));
  CHECK(may("x.a.com", "PUT"));
  CHECK_FALSE(may("x.a.com", "GET"));
  CHECK(may("b.com", "GET"));
  CHECK_FALSE(may("b.com", "POST"));
  CHECK(may("c.com", "GET"));
  CHECK_FALSE(may("c.com", "POST"));
  CHECK(may("d.com", "POST"));
  // Connections: to all of these hosts, where the rules speak of their ports.
  CHECK(allowed_ports(policy, "a.com") == Ports{80, 443});
  CHECK(allowed_ports(policy, "c.com") == Ports{80, 443});
  for (const char* host : {"a.com", "b.com", "c.com", "x.a.com"}) {
    INFO(host);
    CHECK(base::depends_on_request(policy, host, 443));
  }
  CHECK(base::depends_on_path(policy, "a.com", 443));
  CHECK_FALSE(base::depends_on_path(policy, "b.com", 443));
  // Another rule allows everything: nothing is judged.
  CHECK_FALSE(base::depends_on_request(policy, "d.com", 443));
  CHECK_FALSE(base::depends_on_request(policy, "b.com", 22));
}

TEST_CASE("the operator's rules may be about requests, too") {
  NetworkPolicy policy = allowing({"a.com", "b.com"});
  policy.refused_by_operator = {parse_rule(Verdict::deny, "a.com POST")};
  policy.allowed_by_operator = {
      {parse_rule(Verdict::allow, "a.com"), parse_rule(Verdict::allow, "b.com GET")}};
  const auto decider = [&](const char* host, const char* method) {
    const base::HttpRequest request{method, "/"};
    return decide(policy, host, 443, &request).decider;
  };
  CHECK(passes(policy, "a.com"));
  CHECK(passes(policy, "b.com"));
  CHECK(decider("a.com", "GET") == Decider::own);
  CHECK(decider("a.com", "POST") == Decider::operator_refuses);
  CHECK(decider("b.com", "GET") == Decider::own);
  CHECK(decider("b.com", "POST") == Decider::operator_does_not_allow);
  CHECK(base::depends_on_request(policy, "a.com", 443));
  CHECK(base::depends_on_request(policy, "b.com", 443));
}

TEST_CASE("a path that servers read in another way meets no rule about paths") {
  NetworkPolicy policy = allowing({"a.com"});
  policy.own.push_back(parse_rule(Verdict::deny, "https://a.com/admin/"));
  const auto may = [&](const char* target) {
    return base::decide_request(policy, {}, "a.com", 443, "GET", target).allowed;
  };
  CHECK(may("/"));
  CHECK(may("/adminx"));
  for (const char* target :
       {"/admin/", "/admin/x", "/%61dmin/x", "/x/../admin/", "/x/%2e%2e/admin/", "//admin/",
        "/admin%2fx", "/./admin/x", "/admin%5cx", "/x;/admin/", "/x?y#/../"}) {
    INFO(target);
    CHECK(may(target) == (std::string_view(target) == "/x?y#/../"));
  }
  const auto refused = base::decide_request(policy, {}, "a.com", 443, "GET", "/admin/x?secret");
  CHECK(base::refusal_text(refused, "auth") ==
        "GET a.com/admin/x is not allowed: a rule of this workspace (https://a.com/admin/); "
        "allow it: moorage net allow auth https://a.com/admin/x GET");
}

TEST_CASE("the refusal of a request shows how to allow it") {
  NetworkPolicy policy;
  policy.mode = "packages";
  policy.preset = {parse_rule(Verdict::allow, "a.com GET"),
                   parse_rule(Verdict::deny_quietly, "https://a.com/audit/ POST")};
  const auto ask = [&](const char* method, const char* target) {
    return base::decide_request(policy, {}, "a.com", 443, method, target);
  };
  CHECK(ask("HEAD", "/x").allowed);
  CHECK(base::refusal_text(ask("POST", "/x?y"), "auth") ==
        "POST a.com/x is not allowed, only GET; allow it: moorage net allow auth a.com POST");
  CHECK(ask("POST", "/audit/bulk").quiet);
  CHECK_FALSE(ask("POST", "/x").quiet);
}

// Over 600 spellings around the allowed names; what is right is said by comparing whole names.
TEST_CASE("of odd spellings only the allowed names pass") {
  const NetworkPolicy policy = allowing({"api.example.com", ".github.com"});
  const std::vector<std::string> hosts = {"api.example.com", "github.com", "raw.github.com"};
  const std::vector<std::string> before = {"",   "evil", "evil-", "x.", ".",    "a@",     "a:b@",
                                           "//", "%2e",  "\\",    "_.", "xn--", "http://"};
  const std::vector<std::string> after = {
      "",  ".evil.org", "-evil.org", "@evil.org", ":443",     "/",    "%00",
      ".", "..",        " ",         "\t",        "\n",       "evil", ".c",
      "#", "?",         "\\",        "x",         "\xc0\x80", "%2e",  "\xe2\x80\x8b"};
  std::vector<std::string> spellings;
  for (const std::string& host : hosts) {
    for (const std::string& start : before) {
      for (const std::string& end : after) spellings.push_back(start + host + end);
    }
    for (size_t at = 0; at < host.size(); ++at) {
      for (const char* other : {"", "q", "Q", ".", "-", "0"})
        spellings.push_back(std::string(host).replace(at, 1, other));
    }
  }
  CHECK(spellings.size() > 600);
  size_t passed = 0;
  for (const std::string& text : spellings) {
    INFO(text);
    const auto name = base::host_name_on_wire(text);
    if (!name) continue;
    const bool right =
        name == "api.example.com" || name == "github.com" || name->ends_with(".github.com");
    CHECK(passes(policy, *name) == right);
    passed += right ? 1 : 0;
  }
  CHECK(passed > 0);
}
