#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/net/request_policy.h"

using namespace moorage::base;

namespace {

std::string refusal_of(const std::string& url) {
  try {
    parse_scope(url);
  } catch (const Error& error) {
    return error.message();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a scope says where a credential may be sent, by https or ssh") {
  const CredentialScope https = parse_scope("https://Api.Example.com:443/v1/");
  CHECK((https.host == "api.example.com" && https.path == "/v1/" && https.port == 443));
  CHECK(https.form == CredentialForm::bearer);
  const CredentialScope ssh = parse_scope("ssh://git@git.example.com/acme/");
  CHECK((ssh.host == "git.example.com" && ssh.path == "/acme/" && ssh.port == 22));
  CHECK((ssh.form == CredentialForm::ssh_key && ssh.user == "git"));
  CHECK(parse_scope("ssh://git@git.example.com:2222").port == 2222);
  CHECK(parse_scope("ssh://git@git.example.com:2222").path == "/");
  CredentialScope key = ssh;
  parse_form("ssh-key", key);
  CHECK((key.user == "git" && form_text(key) == "ssh-key"));
}

TEST_CASE("a scope that could be read in several ways is refused") {
  for (const char* url : {"http://a.example/", "git@a.example:x", "ssh://a.example/", "file:///x"})
    CHECK(refusal_of(url).find("does not") != std::string::npos);
  for (const char* url :
       {"ssh://-oProxyCommand=x@a.example/", "ssh://a b@a.example/", "ssh://g$(x)@a.example/",
        "ssh://@a.example/", "ssh://a;b@a.example/", "ssh://a'b@a.example/"})
    CHECK(refusal_of(url).find("does not say who logs in") != std::string::npos);
  for (const char* url : {"ssh://git@a.example:0/", "ssh://git@a.example:65536/",
                          "ssh://git@a.example:2x/", "ssh://git@a.example:/"})
    CHECK(refusal_of(url).find("invalid port") != std::string::npos);
  for (const char* url :
       {"ssh://git@127.0.0.1/", "ssh://git@-x.example/../", "https://u@a.example/",
        "https://a.example:444/", "ssh://git@a.example/a/../b"})
    CHECK(refusal_of(url) != "accepted");
}
