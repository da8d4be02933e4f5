#include "base/net/request_policy.h"

#include <openssl/evp.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/net/host_name.h"
#include "base/parts.h"

namespace moorage::base {
namespace {

constexpr uint16_t kHttps = 443;
constexpr std::string_view kScheme = "https://";
constexpr const char* kAuthorization = "Authorization";

bool is_below(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  return path.size() == prefix.size() || prefix.ends_with('/') || path[prefix.size()] == '/';
}

// Whether every server reads it as the same path: no escapes of what separates parts, no parts like
// "..", nothing that one of them would cut off or join.
bool is_plain(std::string_view path) {
  if (path.find("//") != path.npos || path.find_first_of("\\;#\t ") != path.npos) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 127) return false;
  }
  for (size_t at = path.find('%'); at != path.npos; at = path.find('%', at + 1)) {
    const std::string_view digits = path.substr(at + 1, 2);
    // "%2e", "%2f", "%5c", "%00", "%25" in any case: another reading of the path.
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    if (digits.size() < 2 || digits.find_first_not_of(kHex) != digits.npos) return false;
    const int value = std::stoi(std::string(digits), nullptr, 16);
    if (value < ' ' || std::string_view("./\\%;#?").find(static_cast<char>(value)) != path.npos)
      return false;
  }
  for (const std::string_view part : split(path, '/')) {
    if (part == "." || part == "..") return false;
  }
  return true;
}

bool has_method(const std::vector<std::string>& methods, std::string_view method) {
  return methods.empty() || std::ranges::find(methods, method) != methods.end();
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string base64(const std::string& text) {
  std::string encoded(4 * ((text.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  encoded.resize(static_cast<size_t>(size));
  return encoded;
}

bool is_token(std::string_view text) {
  static constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || kOthers.find(c) != kOthers.npos;
  });
}

}  // namespace

bool judges_requests(const NetworkPolicy& policy, const std::vector<CredentialScope>& credentials,
                     std::string_view host, uint16_t port) {
  if (port != kHttps) return false;
  const Decision decision = decide(policy, host, port);
  if (decision.rule != nullptr && !decision.rule->methods.empty()) return true;
  return std::ranges::any_of(credentials,
                             [host](const CredentialScope& scope) { return scope.host == host; });
}

std::vector<std::string> judged_hosts(const NetworkPolicy& policy,
                                      const std::vector<CredentialScope>& credentials) {
  std::set<std::string> hosts;
  for (const CredentialScope& scope : credentials) hosts.insert(scope.host);
  for (const auto* rules : {&policy.own, &policy.preset}) {
    for (const NetworkRule& rule : *rules) {
      if (!rule.methods.empty()) hosts.insert(rule.host);
    }
  }
  return {hosts.begin(), hosts.end()};
}

RequestDecision decide_request(const NetworkPolicy& policy,
                               const std::vector<CredentialScope>& credentials,
                               std::string_view host, std::string_view method,
                               std::string_view target) {
  const Decision decision = decide(policy, host, kHttps);
  if (decision.verdict != Verdict::allow) return {false, why(policy, decision), nullptr};
  if (decision.rule != nullptr && !has_method(decision.rule->methods, method)) {
    return {false,
            std::string(method) + " is not allowed at " + std::string(host) + ", only " +
                joined(decision.rule->methods),
            nullptr};
  }
  const std::string_view path = target.substr(0, target.find('?'));
  RequestDecision best{true, {}, nullptr};
  for (const CredentialScope& scope : credentials) {
    if (scope.host != host) continue;
    if (scope.path != "/" && !is_plain(path))
      return {false, "the path can be read in more than one way", nullptr};
    if (!is_below(path, scope.path) || !has_method(scope.methods, method)) continue;
    if (best.credential == nullptr || scope.path.size() > best.credential->path.size())
      best.credential = &scope;
  }
  return best;
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
    return Error(Code::invalid_argument, "'" + std::string(url) + "' " + why,
                 "like https://api.example.com/v1/");
  };
  if (!url.starts_with(kScheme))
    throw refuse("does not begin with https://, over which alone a credential is sent");
  CredentialScope scope;
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  if (authority.ends_with(":443")) authority.remove_suffix(4);
  if (authority.find('@') != authority.npos) throw refuse("contains a user; see --as basic:USER");
  if (authority.find(':') != authority.npos) throw refuse("names a port; only 443 is possible");
  scope.host = host_name(authority);
  if (slash < rest.size()) scope.path = std::string(rest.substr(slash));
  if (scope.path.find('?') != scope.path.npos || !is_plain(scope.path))
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
  } else if (word == "header" && is_token(text)) {
    scope.form = CredentialForm::header;
    scope.field = std::string(text);
  } else {
    throw Error(Code::invalid_argument,
                "'" + std::string(whole) + "' is not a form of a credential",
                "bearer, basic, basic:USER, or header:NAME");
  }
}

std::string form_text(const CredentialScope& scope) {
  switch (scope.form) {
    case CredentialForm::bearer:
      return "bearer";
    case CredentialForm::basic:
      return scope.user.empty() ? "basic" : "basic:" + scope.user;
    case CredentialForm::header:
      break;
  }
  return "header:" + scope.field;
}

}  // namespace moorage::base
