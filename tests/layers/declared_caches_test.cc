#include "layers/declared_caches.h"

#include <sys/xattr.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "layers/storage_fixture.h"

namespace moorage::layers {
namespace {

struct Places {
  TemporaryDirectory directory;
  std::string upper = directory.path() + "/upper";
  std::string base = directory.path() + "/base";
  Places() {
    base::make_directories(upper);
    base::make_directories(base);
  }
  DeclaredCache cache(const std::string& path) const { return {{upper, base}, path}; }
  std::string kept(const std::string& path) const {
    try {
      return cache(path).exists() ? "goes" : "nothing";
    } catch (const base::Error& error) {
      return error.message();
    }
  }
};

bool taken(const std::string& path) {
  try {
    check_cache_paths({path});
    return true;
  } catch (const base::Error&) {
    return false;
  }
}

TEST_CASE("only plain paths below the workspace or the home can be caches") {
  for (const char* good : {"node_modules", "a/b", "/workspace/target", "/home/user/.cache"})
    CHECK(taken(good));
  for (const char* bad : {"", "/", "/etc", "../x", "a/../b", "a//b", "a/", ".git", ".git/objects",
                          "/workspace", "/workspace/", "/workspace/.git", "/home/user/", "."})
    CHECK_FALSE(taken(bad));
  CHECK_FALSE(taken(std::string("a\0b", 3)));
  CHECK_THROWS_AS(check_cache_paths(std::vector<std::string>(65, "a")), base::Error);
}

TEST_CASE("a cache in the writable layer is removed completely, and nothing else") {
  Places places;
  base::make_directories(places.upper + "/a/cache/deep/er");
  base::write_file(places.upper + "/a/cache/deep/er/file", "x", 0600);
  base::write_file(places.upper + "/a/kept", "x", 0600);
  const DeclaredCache cache = places.cache("a/cache");
  REQUIRE(cache.exists());
  CHECK(cache.usage().inodes == 4);
  cache.remove();
  CHECK(base::list_directory(places.upper + "/a") == std::vector<std::string>{"kept"});
  CHECK_FALSE(places.cache("a/cache").exists());
  CHECK(places.kept("none/such") == "nothing");
}

TEST_CASE("a cache stays if the base has files at its path") {
  Places places;
  base::make_directories(places.upper + "/vendor/new");
  base::make_directories(places.base + "/vendor");
  CHECK(places.kept("vendor") == "the base commit has files there, too");
  CHECK(places.kept("vendor/new") == "goes");
}

TEST_CASE("no symlink is followed, on the way or at the end") {
  Places places;
  base::make_directories(places.directory.path() + "/outside/cache");
  REQUIRE(symlink("../outside", (places.upper + "/way").c_str()) == 0);
  REQUIRE(symlink("../outside", (places.upper + "/end").c_str()) == 0);
  CHECK(places.kept("way/cache") == "nothing");
  places.cache("end").remove();
  CHECK(base::path_exists(places.directory.path() + "/outside/cache"));
  CHECK_FALSE(base::path_exists(places.upper + "/end"));
}

TEST_CASE("a cache stays if overlayfs redirects a directory in or above it") {
  Places places;
  base::make_directories(places.upper + "/cache/moved/x");
  REQUIRE(setxattr((places.upper + "/cache/moved").c_str(), "trusted.overlay.redirect", "/src", 4,
                   0) == 0);
  CHECK(places.kept("cache") == "a directory in it contains files of the base commit");
  CHECK(places.kept("cache/moved/x") == "one of its parent directories was renamed");
}

}  // namespace
}  // namespace moorage::layers
