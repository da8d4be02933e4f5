// What moorage-egress reads of a sandbox: DNS questions, TLS hellos, HTTP requests, messages of the
// line, and names. The first byte chooses which.
#include <algorithm>
#include <charconv>
#include <vector>

#include "base/net/host_name.h"
#include "base/net/network_policy.h"
#include "base/net/network_settings.h"
#include "base/net/request_policy.h"
#include "base/parts.h"
#include "base/wire/network_line.h"
#include "egress/client_hello.h"
#include "egress/dns_message.h"
#include "egress/http_gate.h"
#include "fuzz.h"

namespace moorage {
namespace {

void read_dns(std::string_view input) {
  const auto question = egress::read_question(input);
  if (!question) return;
  const auto address = *base::parse_address("198.18.0.1");
  for (const std::string& answer :
       {egress::answer_address(*question, address, 60), egress::answer_no_data(*question),
        egress::answer_refusal(*question, egress::DnsCode::no_such_name, egress::DnsReason::blocked,
                               "why")}) {
    fuzz::require(answer.substr(0, 2) == input.substr(0, 2), "an answer has the question's id");
    fuzz::require(answer.size() <= 512, "an answer fits a datagram");
  }
  if (question->name.empty()) return;
  fuzz::require(base::host_name_on_wire(question->name) == question->name,
                "a name is in its one spelling");
}

void read_hello(std::string_view input) {
  egress::ClientHello whole;
  const auto at_once = whole.add(input);
  egress::ClientHello cut;
  auto state = egress::ClientHello::State::incomplete;
  for (const char c : input) state = cut.add({&c, 1});
  if (at_once == egress::ClientHello::State::complete && state == at_once)
    fuzz::require(whole.server_name() == cut.server_name(), "pieces make no difference");
}

std::string only_reads(std::string_view method, std::string_view) {
  return method == "GET" ? "" : "only GET";
}

// Nothing may pass that names another host; a parser of a few lines looks for it.
void read_http(std::string_view input) {
  egress::HttpGate whole("example.com", 80, only_reads);
  const std::string passed = whole.from_client(input);
  fuzz::require(input.starts_with(passed), "what passes is what came");
  egress::HttpGate cut("example.com", 80, only_reads);
  std::string piecewise;
  for (const char c : input) piecewise += cut.from_client({&c, 1});
  fuzz::require(piecewise.size() >= passed.size() || !cut.refusal().empty(),
                "pieces make no difference");
  const std::string_view header = std::string_view(passed).substr(0, passed.find("\r\n\r\n"));
  std::string lower(header);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (passed.empty()) return;
  fuzz::require(lower.find("\r\nhost:") != std::string::npos, "a request has a Host");
  fuzz::require(passed.starts_with("GET "), "only what the judge allows passes");
}

void read_line(std::string_view input) {
  const auto message = base::read_line_message(input);
  if (!message) return;
  const auto again = base::read_line_message(base::line_text(*message));
  fuzz::require(again && again->address == message->address && again->port == message->port,
                "a message reads back");
}

void read_names(std::string_view input) {
  const auto name = base::host_name_on_wire(input);
  base::NetworkPolicy policy;
  policy.own = {base::parse_rule(base::Verdict::allow, "example.com"),
                base::parse_rule(base::Verdict::allow, ".example.org")};
  if (!name) return;
  const bool allowed = !base::allowed_ports(policy, *name).empty();
  const bool right =
      name == "example.com" || name == "example.org" || name->ends_with(".example.org");
  fuzz::require(allowed == right, "exactly the allowed names are allowed");
}

void read_rule(std::string_view input) {
  fuzz::refused([input] {
    const auto rule = base::parse_rule(base::Verdict::allow, input);
    const auto again = base::parse_rule(base::Verdict::allow, base::rule_text(rule));
    fuzz::require(base::rule_text(again) == base::rule_text(rule), "a rule reads back");
  });
}

// As a lenient server reads a path: escapes decoded, parts joined and left out.
std::string lenient(std::string_view path) {
  std::string text;
  for (size_t at = 0; at < path.size(); ++at) {
    int value = 0;
    const auto* digits = path.data() + at + 1;
    const bool escape = path[at] == '%' && at + 2 < path.size() &&
                        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    const char c = escape ? static_cast<char>(value) : path[at];
    text += c == '\\' ? '/' : c;
    at += escape ? 2 : 0;
  }
  std::vector<std::string_view> parts;
  for (const std::string_view part : base::split(text, '/')) {
    const std::string_view name = part.substr(0, part.find(';'));
    if (name == ".." && !parts.empty()) parts.pop_back();
    if (!name.empty() && name != "." && name != "..") parts.push_back(name);
  }
  std::string whole;
  for (const std::string_view part : parts) whole += "/" + std::string(part);
  return whole;
}

// No spelling of a path avoids the rule that refuses it.
void read_path(std::string_view input) {
  base::NetworkPolicy policy;
  policy.own = {base::parse_rule(base::Verdict::allow, "example.com"),
                base::parse_rule(base::Verdict::deny, "https://example.com/admin/")};
  const auto decision = base::decide_request(policy, {}, "example.com", 443, "GET", input);
  const std::string read = lenient(input.substr(0, input.find('?')));
  if (read.starts_with("/admin/") && input.starts_with('/'))
    fuzz::require(!decision.allowed, "what is below the path is refused");
  if (decision.allowed || decision.rule.empty()) return;
  policy.own.push_back(base::parse_rule(base::Verdict::allow, decision.rule));
  fuzz::require(base::decide_request(policy, {}, "example.com", 443, "GET", input).allowed,
                "the rule that a refusal names allows it");
}

void read_settings(std::string_view input) {
  fuzz::refused([input] { base::read_network_settings(input); });
  fuzz::refused([input] { base::parse_rule(base::Verdict::allow, input); });
  fuzz::refused([input] { base::host_name(input); });
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  if (size == 0) return 0;
  constexpr void (*kReaders[])(std::string_view) = {
      read_dns, read_hello, read_http, read_line, read_names, read_settings, read_rule, read_path};
  kReaders[data[0] % std::size(kReaders)]({reinterpret_cast<const char*>(data + 1), size - 1});
  return 0;
}
