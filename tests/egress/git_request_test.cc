#include "egress/broker/git_request.h"

#include <catch2/catch.hpp>

using namespace moorage::egress;
using State = PushHead::State;

namespace {

const std::string kZero(40, '0'), kOne(40, '1'), kTwo(40, '2');

std::string line(const std::string& text) {
  char size[5];
  std::snprintf(size, sizeof size, "%04zx", text.size() + 4);
  return size + text;
}
std::string command(const std::string& ref, const std::string& more = "") {
  return line(kOne + " " + kTwo + " " + ref + more);
}
const std::string kCapabilities("\0 report-status side-band-64k agent=git/2", 41);

}  // namespace

TEST_CASE("requests of git's smart protocol are recognized") {
  const auto refs = git_request("GET", "/acme/shop.git/info/refs?service=git-receive-pack");
  REQUIRE(refs);
  CHECK(refs->repository == "/acme/shop.git");
  CHECK(refs->push);
  CHECK_FALSE(refs->transfers);
  const auto fetch = git_request("POST", "/acme/shop/git-upload-pack");
  REQUIRE(fetch);
  CHECK(fetch->repository == "/acme/shop");
  CHECK_FALSE(fetch->push);
  CHECK(fetch->transfers);
  CHECK(git_request("POST", "/acme/shop.git/git-receive-pack")->push);
  CHECK(git_request("PUT", "/acme/shop.git/git-receive-pack")->push);
  for (const char* other :
       {"/acme/shop", "/git-receive-pack", "/acme/shop/info/refs", "/x/info/refs?service=other"})
    CHECK_FALSE(git_request("GET", other));
}

TEST_CASE("no request changes a repository except a push whose commands are read") {
  const Field type{"Content-Type", "application/x-git-receive-pack-request"};
  const auto trouble = [](const std::string& method, const std::string& target, Fields fields) {
    return hidden_push({method, target, std::move(fields)});
  };
  CHECK(trouble("POST", "/acme/shop.git/git-receive-pack", {type}).empty());
  CHECK(trouble("GET", "/acme/shop.git/info/refs?service=git-receive-pack", {}).empty());
  CHECK(trouble("POST", "/acme/shop.git/git-upload-pack", {{"Content-Encoding", "gzip"}}).empty());
  CHECK(trouble("GET", "/search?q=git-receive-pack", {}).empty());
  CHECK(trouble("PUT", "/v1/things/7", {}).empty());
  CHECK(trouble("PUT", "/acme/shop.git/info/lfs/objects/12", {}).empty());
  CHECK_FALSE(trouble("POST", "/a.git/git-receive-pack", {}).empty());
  CHECK_FALSE(trouble("POST", "/a.git/git-receive-pack", {{"content-type", "text/x"}}).empty());
  CHECK_FALSE(
      trouble("POST", "/a.git/git-receive-pack", {type, {"content-encoding", "gzip"}}).empty());
  for (const char* method : {"PUT", "GET", "PATCH", "post"})
    CHECK_FALSE(trouble(method, "/a.git/git-receive-pack", {type}).empty());
  for (const char* target :
       {"/a.git/git-receive-pack?x", "/a.git/git-receive-pack/", "/a.git/git-receive%2dpack",
        "/a.git/git-receive%252dpack", "/a.git/GIT-RECEIVE-PACK", "/a.git/git-receive-pack;x",
        "/a.git/git-receive-pack%00", "/a.git/git-receive-pack%20", "/a.git/%67it-receive-pack/.",
        "/a.git//git-receive-pack", "//a.git/git-receive-pack", "/b/../a.git/git-receive-pack",
        "/%61.git/git-receive-pack", "/cgi?path=/a.git/git-receive-pack",
        "/a.git/git-receive%25252525252dpack", "/git-receive-pack"})
    CHECK_FALSE(trouble("POST", target, {type}).empty());
  for (const char* method : {"PROPFIND", "MKCOL", "MOVE", "COPY", "LOCK", "UNLOCK", "PROPPATCH"})
    CHECK_FALSE(trouble(method, "/anything", {}).empty());
  for (const char* method : {"PUT", "DELETE", "PATCH"}) {
    for (const char* target :
         {"/a.git/refs/heads/main", "/a/refs/heads/main", "/a.git/HEAD", "/a/objects/12/34",
          "/a.GIT/x", "/a%2egit/x", "/a/packed-refs", "/repos/acme/shop/git/refs/heads/main"})
      CHECK_FALSE(trouble(method, target, {}).empty());
  }
}

TEST_CASE("the commands of a push are read, in whatever pieces") {
  const std::string body = line("shallow " + kOne) + command("refs/heads/main", kCapabilities) +
                           command("refs/tags/v1") + "0000" + "PACK....";
  PushHead head;
  for (size_t size = 0; size < body.size() - 8; ++size)
    REQUIRE(head.read(body.substr(0, size)) == State::incomplete);
  REQUIRE(head.read(body) == State::complete);
  REQUIRE(head.commands().size() == 2);
  CHECK(head.commands()[0].ref == "refs/heads/main");
  CHECK(head.commands()[0].old_id == kOne);
  CHECK(head.commands()[0].new_id == kTwo);
  CHECK(head.commands()[1].ref == "refs/tags/v1");
  PushHead probe;
  CHECK(probe.read("0000") == State::complete);
  CHECK(probe.commands().empty());
  CHECK(probe.read("0000" + body) == State::invalid);
}

TEST_CASE("a push that cannot be judged is refused") {
  const std::string body = GENERATE(
      std::string("PACK"), std::string("0003"), std::string("00G0"), std::string("+04a"),
      command("refs/heads/main") + "0000", command("main", kCapabilities) + "0000",
      command("refs/heads/../main", kCapabilities) + "0000",
      command("refs/heads//main", kCapabilities) + "0000",
      command("refs/heads/ma in", kCapabilities) + "0000",
      command("refs/heads/x.lock", kCapabilities) + "0000", command("HEAD", kCapabilities) + "0000",
      command("refs/heads/", kCapabilities) + "0000",
      command("refs/heads/*", kCapabilities) + "0000",
      command("refs/heads/a", kCapabilities) + command("refs/heads/a") + "0000",
      line("push-cert" + kCapabilities + "\n") + "0000",
      line(kOne + " " + kTwo.substr(1) + " refs/heads/a" + kCapabilities) + "0000",
      line("ABCDEF" + kOne.substr(6) + " " + kTwo + " refs/heads/a" + kCapabilities) + "0000",
      command("refs/heads/a", std::string("\0 report-status push-options", 28)) + "0000");
  PushHead head;
  CHECK(head.read(body) == State::invalid);
  CHECK_FALSE(head.trouble().empty());
}

TEST_CASE("a refusal is in the form that git shows") {
  PushHead head;
  REQUIRE(head.read(command("refs/heads/a", kCapabilities) + command("refs/heads/b") + "0000") ==
          State::complete);
  const std::string report =
      line("unpack ok\n") + line("ng refs/heads/a no\n") + line("ng refs/heads/b never\n") + "0000";
  CHECK(head.can_report());
  CHECK(head.refusal({"no", "never"}) == line("\x01" + report) + "0000");
  PushHead plain;
  REQUIRE(plain.read(command("refs/heads/a", std::string("\0report-status", 14)) + "0000") ==
          State::complete);
  CHECK(plain.refusal({"no"}) == line("unpack ok\n") + line("ng refs/heads/a no\n") + "0000");
}
