// What `create --from` names: parts of a repository that stay.
#include <sys/stat.h>

#include "local_scene.h"

using namespace moorage;
using namespace moorage::test::local;

TEST_CASE(
    "stashes, notes, refs, remotes, hooks and settings that stay are named, one line a kind") {
  Directory directory;
  make_repository(directory, "repo");
  const std::string top = directory / "repo";
  for (const char* text : {"one", "two"}) {
    directory.put("repo/README", text);
    git(top, {"stash", "push", "-q"});
  }
  git(top, {"notes", "add", "-m", "reviewed"});
  git(top, {"update-ref", "refs/pull/7/head", "HEAD"});
  git(top, {"remote", "add", "origin", "https://git.example.com/acme/shop.git"});
  git(top, {"remote", "add", "fork", "https://me:hidden@git.example.com/me/shop.git"});
  git(top, {"remote", "add", "disk", "/srv/shop"});
  git(top, {"config", "merge.ff", "only"});
  git(top, {"config", "http.https://me:hidden@git.example.com/.extraHeader", "X-Key: hidden"});
  directory.put("repo/.git/hooks/pre-commit", "#!/bin/sh\n");
  directory.put("repo/.git/hooks/pre-push.sample", "#!/bin/sh\n");
  for (const char* hook : {"pre-commit", "pre-push.sample"})
    REQUIRE(::chmod((top + "/.git/hooks/" + hook).c_str(), 0755) == 0);
  LocalBundle bundle(top);
  bundle.commit();
  CHECK(bundle.notes() == std::vector<std::string>{
                              "stashes stay here: 2", "git notes stay here: refs/notes/commits",
                              "refs that are neither branches nor tags stay here: refs/pull/7/head",
                              "remotes stay here: disk, fork", "hooks stay here: pre-commit",
                              "settings of .git/config stay here: merge.ff, http.extraheader"});
}

TEST_CASE("a remote that is a path of this machine is named, a usual repository has no notes") {
  Directory directory;
  make_repository(directory, "repo");
  const std::string top = directory / "repo";
  {
    LocalBundle bundle(top);
    bundle.commit();
    CHECK(bundle.notes().empty());
  }
  git(top, {"remote", "add", "origin", directory / "upstream"});
  LocalBundle bundle(top);
  bundle.commit();
  CHECK(bundle.notes() == std::vector<std::string>{"remotes stay here: origin"});
}
