// What a sandbox may ask of a host that it may reach, and with which credential. Where there is
// such a rule, moorage-egress ends TLS, judges each request, and puts the credential in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/network_policy.h"

namespace moorage::base {

enum class CredentialForm {
  bearer,   // Authorization: Bearer SECRET
  basic,    // Authorization: Basic, of USER:SECRET
  header,   // FIELD: SECRET
  ssh_key,  // a private key, for git over ssh
};

// One place where a credential may be sent: over TLS at port 443, or over ssh.
struct CredentialScope {
  std::string credential;            // its name
  std::string host;                  // exact, in the spelling of host_name.h
  std::string path = "/";            // it and all below it
  std::vector<std::string> methods;  // empty: all
  CredentialForm form = CredentialForm::bearer;
  std::string field;  // of the header: Authorization, or what `header` names
  std::string user;   // of `basic`; empty: the secret has it, "USER:PASSWORD". Of ssh: who logs in
  uint16_t port = 443;
};

// Whether requests to the host are judged, so that TLS must end at the egress.
bool judges_requests(const NetworkPolicy& policy, const std::vector<CredentialScope>& credentials,
                     std::string_view host, uint16_t port);

// All hosts of which that may be true; ".example.com" stands for itself and all below it.
std::vector<std::string> judged_hosts(const NetworkPolicy& policy,
                                      const std::vector<CredentialScope>& credentials);

struct RequestDecision {
  bool allowed = false;
  std::string why{};                            // for people, if it is not
  std::string rule{};                           // would allow it; empty: none does
  bool quiet = false;                           // programs do without it
  const CredentialScope* credential = nullptr;  // to put in
  const CredentialScope* ssh_key = nullptr;     // for git, where there is no other
};
// `target`: a path with its query. A path that servers may read in several ways is refused where a
// rule is about paths.
RequestDecision decide_request(const NetworkPolicy& policy,
                               const std::vector<CredentialScope>& credentials,
                               std::string_view host, uint16_t port, std::string_view method,
                               std::string_view target);

// Why a request was refused and what to do, for people. Empty: it was not.
std::string refusal_text(const RequestDecision& decision, const std::string& workspace);

// The text that stands for the secret inside, and the beginning of all such texts.
inline constexpr std::string_view kPlaceholder = "moorage-credential-";
std::string placeholder_of(std::string_view credential);

// The value of the field, from the secret. `also`: other forms in which the secret could be read.
struct FieldValue {
  std::string text;
  std::vector<std::string> also;
};
FieldValue field_value(const CredentialScope& scope, const std::string& secret);

// "https://api.example.com/v1/", "ssh://git@example.com:22/acme/". Throws invalid_argument. Sets
// place, and for ssh also form and user.
CredentialScope parse_scope(std::string_view url);
// "bearer", "basic", "basic:USER", "header:X-Api-Key", "ssh-key". Throws invalid_argument. Sets the
// rest.
void parse_form(std::string_view text, CredentialScope& scope);
std::string form_text(const CredentialScope& scope);

}  // namespace moorage::base
