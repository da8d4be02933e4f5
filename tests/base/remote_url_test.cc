#include "base/remote_url.h"

#include <catch2/catch.hpp>

using moorage::base::url_without_credentials;

TEST_CASE("the URL of a remote is shown without its credentials") {
  CHECK(url_without_credentials("https://git.example.com/a/b.git") ==
        "https://git.example.com/a/b.git");
  CHECK(url_without_credentials("https://me:secret@git.example.com:8443/a?b") ==
        "https://git.example.com:8443/a?b");
  CHECK(url_without_credentials("https://token@git.example.com/a@b") ==
        "https://git.example.com/a@b");
  CHECK(url_without_credentials("https://a@b:c@git.example.com") == "https://git.example.com");
  CHECK(url_without_credentials("ssh://git:secret@git.example.com:22/a") ==
        "ssh://git@git.example.com:22/a");
  CHECK(url_without_credentials("git@git.example.com:a/b.git") == "git@git.example.com:a/b.git");
}

TEST_CASE("paths, remote helpers and malformed texts give no URL") {
  for (const char* url :
       {"", "/srv/a", "../a", "./a:b", "file:///srv/a", "ext::sh -c x", "fd::3", "-oProxy=x",
        "https://", "https://me@/a", "ftp://a/b", "https://a/b\nc", "a b:c"}) {
    INFO(url);
    CHECK(url_without_credentials(url).empty());
  }
}
