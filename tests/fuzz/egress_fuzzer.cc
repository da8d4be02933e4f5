// What moorage-egress reads of a sandbox: DNS questions, TLS hellos, HTTP requests, messages of the
// line, and names. The first byte chooses which.
#include <algorithm>

#include "base/net/host_name.h"
#include "base/net/network_policy.h"
#include "base/net/network_settings.h"
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
        egress::answer_refusal(*question, egress::DnsCode::no_such_name,
                               egress::DnsReason::blocked, "why")}) {
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

// Nothing may pass that names another host; a parser of a few lines looks for it.
void read_http(std::string_view input) {
  egress::HttpGate whole("example.com", 80);
  const std::string passed = whole.from_client(input);
  fuzz::require(input.starts_with(passed), "what passes is what came");
  egress::HttpGate cut("example.com", 80);
  std::string piecewise;
  for (const char c : input) piecewise += cut.from_client({&c, 1});
  fuzz::require(piecewise.size() >= passed.size() || !cut.refusal().empty(),
                "pieces make no difference");
  const std::string_view header = std::string_view(passed).substr(0, passed.find("\r\n\r\n"));
  std::string lower(header);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!passed.empty())
    fuzz::require(lower.find("\r\nhost:") != std::string::npos, "a request has a Host");
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
  constexpr void (*kReaders[])(std::string_view) = {read_dns,  read_hello, read_http,
                                                    read_line, read_names, read_settings};
  kReaders[data[0] % std::size(kReaders)](
      {reinterpret_cast<const char*>(data + 1), size - 1});
  return 0;
}
