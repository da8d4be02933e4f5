#include "repo_cache/url.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "git_fixture.h"

using namespace moorage;
using namespace moorage::repo_cache;
using namespace std::string_literals;

namespace {

struct Accepted {
  std::string text;
  std::string fetch;
  std::string key;
  std::string display;
};

const std::vector<Accepted> kAccepted = {
    {"https://github.com/acme/shop", "https://github.com/acme/shop", "https://github.com/acme/shop",
     "acme/shop"},
    {"https://github.com/acme/shop.git", "https://github.com/acme/shop.git",
     "https://github.com/acme/shop", "acme/shop"},
    {"https://github.com/acme/shop/", "https://github.com/acme/shop",
     "https://github.com/acme/shop", "acme/shop"},
    {"HTTPS://GitHub.com/Acme/Shop", "https://github.com/Acme/Shop", "https://github.com/Acme/Shop",
     "Acme/Shop"},
    {"https://github.com:443/a/b", "https://github.com/a/b", "https://github.com/a/b", "a/b"},
    {"https://github.com:8443/a/b", "https://github.com:8443/a/b", "https://github.com:8443/a/b",
     "a/b"},
    {"https://github.com:0443/a/b", "https://github.com/a/b", "https://github.com/a/b", "a/b"},
    {"https://github.com./a/b", "https://github.com/a/b", "https://github.com/a/b", "a/b"},
    {"https://host//a///b.git/", "https://host/a/b.git", "https://host/a/b", "a/b"},
    {"https://host/x/y/z/w", "https://host/x/y/z/w", "https://host/x/y/z/w", "z/w"},
    {"https://host/one", "https://host/one", "https://host/one", "one"},
    {"https://host/a/.git", "https://host/a/.git", "https://host/a/.git", "a/.git"},
    {"https://[2001:db8::1]/a/b", "https://[2001:db8::1]/a/b", "https://[2001:db8::1]/a/b", "a/b"},
    {"https://[2001:db8::1]:8443/a/b", "https://[2001:db8::1]:8443/a/b",
     "https://[2001:db8::1]:8443/a/b", "a/b"},
    {"https://host/a%20b/c", "https://host/a%20b/c", "https://host/a%20b/c", "a%20b/c"},
    {"https://host/\xc3\xa9/c", "https://host/\xc3\xa9/c", "https://host/\xc3\xa9/c",
     "?"
     "?/c"},
    {"git://host/a/b.git", "git://host/a/b.git", "git://host/a/b", "a/b"},
    {"git://host:9418/a/b", "git://host/a/b", "git://host/a/b", "a/b"},
    {"ssh://git@github.com/a/b.git", "ssh://git@github.com/a/b.git", "ssh://git@github.com/a/b",
     "a/b"},
    {"ssh://git@github.com:22/a/b", "ssh://git@github.com/a/b", "ssh://git@github.com/a/b", "a/b"},
    {"ssh://git@github.com:2222/a/b", "ssh://git@github.com:2222/a/b",
     "ssh://git@github.com:2222/a/b", "a/b"},
    {"ssh://host/~me/b", "ssh://host/~me/b", "ssh://host/~me/b", "~me/b"},
    {"git+ssh://git@host/a/b", "ssh://git@host/a/b", "ssh://git@host/a/b", "a/b"},
    {"git@github.com:a/b.git", "git@github.com:a/b.git", "ssh://git@github.com/~/a/b", "a/b"},
    {"git@GitHub.com:a/b", "git@github.com:a/b", "ssh://git@github.com/~/a/b", "a/b"},
    {"host:a/b", "host:a/b", "ssh://host/~/a/b", "a/b"},
    {"host:/srv/a/b", "ssh://host/srv/a/b", "ssh://host/srv/a/b", "a/b"},
    {"me@host:~you/b", "me@host:~you/b", "ssh://me@host/~you/b", "~you/b"},
};

const std::vector<std::string> kRefused = {
    "",
    "host..:a/b",
    "https://host../a/b",
    "ext::sh -c touch% /tmp/x",
    "ext::sh",
    "fd::17",
    "transport::https://host/a/b",
    "ext::https://host/a/b",
    "-oProxyCommand=touch /tmp/x",
    "--upload-pack=touch",
    "-u",
    "ssh://-oProxyCommand=x/a/b",
    "ssh://-oProxyCommand=x@host/a/b",
    "ssh://git@-oProxyCommand=x/a/b",
    "-oProxyCommand=x:a/b",
    "git@-oProxyCommand=x:a/b",
    "-x@host:a/b",
    "host:-oProxyCommand",
    "https://host/-rf/x",
    "https://host/a/--upload-pack=x",
    "git://host/a/-b",
    "https://user:secret@host/a/b",
    "https://token@host/a/b",
    "https://:x@host/a/b",
    "https://user:se@cret@host/a/b",
    "ssh://git:secret@host/a/b",
    "git://user@host/a/b",
    "git:secret@host:a/b",
    "ssh://@host/a/b",
    "ssh://a b@host/a/b",
    "https://host/a/b\n",
    "https://host/a\r\n/b",
    "https://host/a\tb/c",
    "https://ho\0st/a/b"s,
    "https://host/a/b\x7f",
    "https://host/a b/c",
    "https://host/a\\b",
    "\x1b[31mhttps://host/a/b",
    "https://host/a%00b/c",
    "https://host/a%0ab/c",
    "https://host/a%0Db/c",
    "https://host/%2e%2e/c",
    "https://host/a%2Fb/c",
    "https://host/a/../b",
    "https://host/./a",
    "host:../a",
    "https://host/",
    "https://host",
    "https:///a/b",
    "https://",
    "https://host:0/a/b",
    "https://host:65536/a/b",
    "https://host:x/a/b",
    "https://host:/a/b",
    "https://host:-1/a/b",
    "https://.host/a/b",
    "https://ho..st/a/b",
    "https://ho$t/a/b",
    "https://ho;st/a/b",
    "https://h\xc3\xb6st/a/b",
    "https://[::1/a/b",
    "https://[evil]/a/b",
    "https://host/a/b?x=1",
    "https://host/a/b#frag",
    "host:",
    "./relative",
    "relative/path",
    "name",
    "file://host/a",
    "file:///a%20b",
};

const std::vector<std::string> kUnsupported = {
    "http://host/a/b",     "ftp://host/a/b", "ftps://host/a/b", "rsync://host/a/b",
    "javascript://host/a", "unix://host/a",  "bundle://host/a", "helper+https://host/a",
};

base::Code code_of(const std::string& text, const UrlPolicy& policy = {}) {
  try {
    parse_url(text, policy);
  } catch (const base::Error& error) {
    return error.code();
  }
  FAIL("accepted: " << text);
  return base::Code::internal;
}

}  // namespace

TEST_CASE("an accepted URL gets one form, one key and one display name") {
  for (const auto& row : kAccepted) {
    INFO(row.text);
    const RepoUrl url = parse_url(row.text, {});
    CHECK(url.fetch == row.fetch);
    CHECK(url.key == row.key);
    CHECK(url.display == row.display);
  }
}

TEST_CASE("a dangerous or malformed URL is refused") {
  for (const auto& text : kRefused) {
    INFO(text);
    CHECK(code_of(text) == base::Code::invalid_argument);
  }
  for (const auto& text : kUnsupported) {
    INFO(text);
    CHECK(code_of(text) == base::Code::unsupported);
  }
  CHECK(code_of("https://host/" + std::string(3000, 'a')) == base::Code::invalid_argument);
  CHECK(kAccepted.size() + kRefused.size() + kUnsupported.size() >= 80);
}

TEST_CASE("a secret in a URL never appears in the message") {
  for (const char* text :
       {"https://user:hunter2@host/a/b", "https://hunter2@host/a/b", "git:hunter2@host:a/b"}) {
    try {
      parse_url(text, {});
      FAIL("accepted");
    } catch (const base::Error& error) {
      CHECK((error.message() + error.hint()).find("hunter2") == std::string::npos);
      CHECK_FALSE(error.hint().empty());
    }
  }
}

TEST_CASE("names that look alike are different repositories") {
  std::set<std::string> keys;
  const std::vector<std::string> urls = {
      "https://a.org/a_b/c", "https://a.org/a/b_c",     "https://b.org/a_b/c",
      "https://b.org/a/b_c", "ssh://a.org/a/b_c",       "a.org:a/b_c",
      "git@a.org:a/b_c",     "https://a.org:444/a/b_c", "git://a.org/a/b_c",
      "https://a.org/a/b/c", "https://a.org/A/b_c",     "me@a.org:a/b_c"};
  for (const auto& text : urls) keys.insert(parse_url(text, {}).key);
  CHECK(keys.size() == urls.size());
}

TEST_CASE("a path is accepted only below a configured root, despite links") {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "root/repo.git");
  std::filesystem::create_directories(directory / "rootless");
  std::filesystem::create_directories(directory / "root/with space");
  std::filesystem::create_directory_symlink(directory / "rootless", directory / "root/way-out");
  const UrlPolicy policy{{directory / "root"}};
  const std::string real = std::filesystem::canonical(directory / "root").string();
  CHECK(parse_url(directory / "root/repo.git", policy).fetch == real + "/repo.git");
  CHECK(parse_url("file://" + (directory / "root/repo.git"), policy).key ==
        "file://" + real + "/repo.git");
  CHECK(parse_url(directory / "root/repo.git", policy).display == "root/repo");
  CHECK(parse_url(directory / "root/with space", policy).fetch == real + "/with space");
  CHECK(parse_url("file://" + (directory / "root/a::b"), policy).fetch == real + "/a::b");
  CHECK(parse_url(directory / "root/a::b", policy).fetch == real + "/a::b");
  CHECK(code_of(directory / "rootless", policy) == base::Code::permission_denied);
  CHECK(code_of(directory / "root/way-out", policy) == base::Code::permission_denied);
  CHECK(code_of(directory / "root/../rootless", policy) == base::Code::invalid_argument);
  const RepoUrl missing = parse_url(directory / "root/missing", policy);
  CHECK(missing.missing);
  CHECK(missing.key == "file://" + (directory / "root/missing"));
  CHECK_FALSE(parse_url(directory / "root/repo.git", policy).missing);
  CHECK(code_of(directory / "missing", policy) == base::Code::permission_denied);
  CHECK(code_of(directory / "root/repo.git") == base::Code::permission_denied);
}
