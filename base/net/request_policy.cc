#include "base/net/request_policy.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/net/host_name.h"
#include "base/net/url_path.h"
#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr uint16_t kHttps = 443;
constexpr uint16_t kSsh = 22;
constexpr std::string_view kScheme = "https://";
constexpr std::string_view kSshScheme = "ssh://";
constexpr const char* kAuthorization = "Authorization";
constexpr const char* kUnclear = "the path can be read in more than one way";

// The rules that allow something at the host, as a refusal shows them.
std::string allowed_there(const NetworkPolicy& policy, std::string_view host, uint16_t port) {
  std::string text;
  for (const auto* rules : {&policy.own, &policy.preset}) {
    for (const NetworkRule& rule : *rules) {
      if (rule.verdict != Verdict::allow || !is_narrow(rule) || !covers(rule, host, port)) continue;
      const std::string whole = rule_text(rule);
      text += (text.empty() ? "" : "; ") +
              (rule.path.empty() ? whole.substr(whole.find(' ') + 1) : whole);
    }
  }
  return text;
}

// The rule to add, so that the request is allowed.
std::string rule_for(const NetworkPolicy& policy, std::string_view host, uint16_t port,
                     const HttpRequest& request) {
  NetworkRule rule;
  rule.host = host;
  rule.methods = {std::string(request.method)};
  if (request.path.starts_with('/') && depends_on_path(policy, host, port))
    rule.path = request.path;
  return rule_text(rule);
}

std::string base64(const std::string& text) {
  std::string encoded(4 * ((text.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  encoded.resize(static_cast<size_t>(size));
  return encoded;
}

RequestDecision refused(std::string why) { return {.why = std::move(why)}; }

RequestDecision refusal(const NetworkPolicy& policy, const Decision& decision,
                        std::string_view host, uint16_t port, const HttpRequest& request) {
  RequestDecision result;
  result.why = std::string(request.method) + " " + std::string(host) + std::string(request.path) +
               " is not allowed";
  const std::string others = allowed_there(policy, host, port);
  if (decision.decider == Decider::mode && !others.empty())
    result.why += ", only " + others;
  else
    result.why += ": " + why(policy, decision);
  const bool by_operator = decision.decider == Decider::operator_refuses ||
                           decision.decider == Decider::operator_does_not_allow;
  if (!by_operator) result.rule = rule_for(policy, host, port, request);
  result.quiet = decision.verdict == Verdict::deny_quietly;
  return result;
}

bool is_token(std::string_view text) {
  static constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || kOthers.find(c) != kOthers.npos;
  });
}

// Fields that say where a message goes or ends.
bool frames_message(std::string_view field) {
  static constexpr std::string_view kFraming[] = {
      "host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade"};
  std::string lower(field);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return std::ranges::find(kFraming, lower) != std::end(kFraming);
}

bool parse_port(std::string_view text, uint16_t& port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port != 0;
}

bool is_user(std::string_view text) {
  return is_token(text) && text.front() != '-' && text.find_first_of("!#$%&'*^`|~") == text.npos;
}

}  // namespace

bool judges_requests(const NetworkPolicy& policy, const std::vector<CredentialScope>& credentials,
                     std::string_view host, uint16_t port) {
  if (port != kHttps) return false;
  return depends_on_request(policy, host, port) ||
         std::ranges::any_of(credentials,
                             [host](const CredentialScope& scope) { return scope.host == host; });
}

std::vector<std::string> judged_hosts(const NetworkPolicy& policy,
                                      const std::vector<CredentialScope>& credentials) {
  std::set<std::string> hosts;
  for (const CredentialScope& scope : credentials) hosts.insert(scope.host);
  const auto add = [&hosts](const std::vector<NetworkRule>& rules) {
    for (const NetworkRule& rule : rules) {
      if (is_narrow(rule)) hosts.insert(rule.host);
    }
  };
  for (const auto* rules : {&policy.own, &policy.preset, &policy.refused_by_operator}) add(*rules);
  for (const auto& rules : policy.allowed_by_operator) add(rules);
  return {hosts.begin(), hosts.end()};
}

RequestDecision decide_request(const NetworkPolicy& policy,
                               const std::vector<CredentialScope>& credentials,
                               std::string_view host, uint16_t port, std::string_view method,
                               std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  const bool is_plain = is_plain_path(path);
  if (!is_plain && depends_on_path(policy, host, port)) return refused(kUnclear);
  const std::string usual = is_plain ? usual_path(path) : std::string(path);
  const HttpRequest request{method, usual};
  const Decision decision = decide(policy, host, port, &request);
  if (decision.verdict != Verdict::allow) return refusal(policy, decision, host, port, request);
  RequestDecision best{.allowed = true};
  for (const CredentialScope& scope : credentials) {
    if (scope.host != host || port != kHttps) continue;
    if (scope.path != "/" && !is_plain) return refused(kUnclear);
    if (!path_is_below(usual, usual_path(scope.path)) || !has_method(scope.methods, method))
      continue;
    auto& chosen = scope.form == CredentialForm::ssh_key ? best.ssh_key : best.credential;
    if (chosen == nullptr || scope.path.size() > chosen->path.size()) chosen = &scope;
  }
  return best;
}

std::string refusal_text(const RequestDecision& decision, const std::string& workspace) {
  if (decision.allowed || decision.rule.empty()) return decision.why;
  return decision.why + "; allow it: moorage net allow " + workspace + " " + decision.rule;
}

std::string placeholder_of(std::string_view credential) {
  return std::string(kPlaceholder) + std::string(credential);
}

FieldValue field_value(const CredentialScope& scope, const std::string& secret) {
  switch (scope.form) {
    case CredentialForm::bearer:
      return {"Bearer " + secret, {secret}};
    case CredentialForm::header:
      return {secret, {secret}};
    case CredentialForm::ssh_key:
      throw Error(Code::internal, "an ssh key is not for a header");
    case CredentialForm::basic:
      break;
  }
  const std::string pair = scope.user.empty() ? secret : scope.user + ":" + secret;
  const std::string encoded = base64(pair);
  const std::string password = pair.substr(std::min(pair.find(':'), pair.size() - 1) + 1);
  return {"Basic " + encoded, {encoded, password}};
}

CredentialScope parse_scope(std::string_view url) {
  const auto refuse = [url](const std::string& why) -> Error {
    return Error(Code::invalid_argument, quoted_unless_secret(url) + " " + why,
                 "like https://api.example.com/v1/ or ssh://git@git.example.com/acme/");
  };
  CredentialScope scope;
  const bool by_ssh = url.starts_with(kSshScheme);
  if (!by_ssh && !url.starts_with(kScheme))
    throw refuse("does not begin with https:// or ssh://, over which alone a credential is sent");
  const std::string_view rest = url.substr(by_ssh ? kSshScheme.size() : kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  const size_t at = authority.find('@');
  if (by_ssh) {
    scope.form = CredentialForm::ssh_key;
    scope.port = kSsh;
    if (at == authority.npos || !is_user(authority.substr(0, at)))
      throw refuse("does not say who logs in, like git@");
    scope.user = std::string(authority.substr(0, at));
    authority.remove_prefix(at + 1);
    if (const size_t colon = authority.find(':'); colon != authority.npos) {
      if (!parse_port(authority.substr(colon + 1), scope.port)) throw refuse("has an invalid port");
      authority = authority.substr(0, colon);
    }
  }
  if (!by_ssh && authority.ends_with(":443")) authority.remove_suffix(4);
  if (!by_ssh && at != rest.npos) throw refuse("contains a user; see --as basic:USER");
  if (authority.find(':') != authority.npos) throw refuse("names a port; only 443 is possible");
  scope.host = host_name(authority);
  if (slash < rest.size()) scope.path = std::string(rest.substr(slash));
  if (scope.path.find('?') != scope.path.npos || !is_plain_path(scope.path))
    throw refuse("has a path that servers may read in more than one way");
  return scope;
}

void parse_form(std::string_view text, CredentialScope& scope) {
  const std::string_view whole = text;
  const std::string_view word = take_until(text, ':');
  scope.field = kAuthorization;
  if (word == "bearer" && whole == word) {
    scope.form = CredentialForm::bearer;
  } else if (word == "basic") {
    scope.form = CredentialForm::basic;
    scope.user = std::string(text);
  } else if (word == "header" && is_token(text) && !frames_message(text)) {
    scope.form = CredentialForm::header;
    scope.field = std::string(text);
  } else if (whole == "ssh-key") {
    scope.form = CredentialForm::ssh_key;
    scope.field.clear();
  } else {
    throw Error(Code::invalid_argument,
                "'" + std::string(whole) + "' is not a form of a credential",
                "bearer, basic, basic:USER, header:NAME, or ssh-key");
  }
}

std::string form_text(const CredentialScope& scope) {
  switch (scope.form) {
    case CredentialForm::bearer:
      return "bearer";
    case CredentialForm::basic:
      return scope.user.empty() ? "basic" : "basic:" + scope.user;
    case CredentialForm::ssh_key:
      return "ssh-key";
    case CredentialForm::header:
      break;
  }
  return "header:" + scope.field;
}

}  // namespace moorage::base
