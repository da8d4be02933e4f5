#include "base/net/request_policy.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage;
using base::CredentialForm;
using base::CredentialScope;

namespace {

CredentialScope scope(const std::string& url, const std::string& form = "bearer") {
  CredentialScope made = base::parse_scope(url);
  base::parse_form(form, made);
  return made;
}

base::NetworkPolicy open_policy() {
  base::NetworkPolicy policy;
  policy.open = true;
  policy.open_ports = {443};
  return policy;
}

std::string credential_for(const std::vector<CredentialScope>& credentials, const char* method,
                           const char* target) {
  const auto decision =
      base::decide_request(open_policy(), credentials, "api.example.com", 443, method, target);
  if (!decision.allowed) return "refused";
  return decision.credential == nullptr ? "none" : decision.credential->credential;
}

}  // namespace

TEST_CASE("a credential's URL is one host over TLS, and a path without a second reading") {
  const CredentialScope whole = scope("https://API.example.com");
  CHECK(whole.host == "api.example.com");
  CHECK(whole.path == "/");
  CHECK(scope("https://api.example.com:443/v1/").path == "/v1/");
  for (const char* url :
       {"http://api.example.com/", "api.example.com", "https://api.example.com:8443/",
        "https://me:secret@api.example.com/", "https://api.example.com/a/../b",
        "https://api.example.com/a%2fb", "https://api.example.com/a?b", "https:///v1", ""}) {
    INFO(url);
    CHECK_THROWS_AS(base::parse_scope(url), base::Error);
  }
}

TEST_CASE("the form of a credential is spelled as it is read") {
  for (const char* form : {"bearer", "basic", "basic:me", "header:X-Api-Key"})
    CHECK(base::form_text(scope("https://api.example.com/", form)) == form);
  CredentialScope any;
  // The last ones decide where a request goes or ends.
  for (const char* form :
       {"", "Bearer", "bearer:x", "header", "header:", "header:a b", "header:a:b", "header:Host",
        "header:content-length", "header:Transfer-Encoding"}) {
    INFO(form);
    CHECK_THROWS_AS(base::parse_form(form, any), base::Error);
  }
}

TEST_CASE("a credential becomes a header's value, and its other forms are known") {
  const std::string url = "https://api.example.com/";
  CHECK(base::field_value(scope(url), "secret").text == "Bearer secret");
  CHECK(base::field_value(scope(url, "header:X-Api-Key"), "secret").text == "secret");
  for (const auto& [form, secret] : {std::pair("basic:me", "secret"), {"basic", "me:secret"}}) {
    const base::FieldValue value = base::field_value(scope(url, form), secret);
    CHECK(value.text == "Basic bWU6c2VjcmV0");
    CHECK(value.also == std::vector<std::string>{"bWU6c2VjcmV0", "secret"});
  }
}

TEST_CASE("the credential with the longest path that covers a request is put in") {
  CredentialScope wide = scope("https://api.example.com/v1");
  CredentialScope narrow = scope("https://api.example.com/v1/files/");
  wide.credential = "wide";
  narrow.credential = "narrow";
  narrow.methods = {"GET"};
  const std::vector<CredentialScope> both{wide, narrow};
  CHECK(credential_for(both, "GET", "/v1/files/7?x=1") == "narrow");
  CHECK(credential_for(both, "GET", "/v1/%66iles/7") == "narrow");
  CHECK(credential_for(both, "POST", "/v1/files/7") == "wide");
  CHECK(credential_for(both, "GET", "/v1") == "wide");
  CHECK(credential_for(both, "GET", "/v10") == "none");
  CHECK(credential_for(both, "GET", "/") == "none");
  for (const char* target : {"/v1/../admin", "/v1/%2e%2e/admin", "/v1//x", "/v1\\x"}) {
    INFO(target);
    CHECK(credential_for(both, "GET", target) == "refused");
  }
}
