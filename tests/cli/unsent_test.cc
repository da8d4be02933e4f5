// What `create --from` names and lists: parts of a repository that stay, and ignored files.
#include <sys/stat.h>

#include "cli/local/ignored.h"
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

TEST_CASE("an ignored directory is listed once, and its part in .gitignore needs no note") {
  Directory directory;
  make_repository(directory, "repo");
  const std::string top = directory / "repo";
  directory.put("repo/.gitignore", "*.log\nbuild/x\n");
  directory.put("repo/.git/info/exclude", "build/\nmine\n");
  for (const char* path : {"o/1.log", "o/a/2.log", "o/a/b/3.log", "o-1.log", "build/x", "mine"})
    directory.put("repo/" + std::string(path), "text\n");
  cli::GitCall in_tree;
  in_tree.directory = top;
  const auto found = cli::find_ignored(top, in_tree);
  CHECK(found.paths == std::vector<std::string>{"build/", "o-1.log", "o/"});
  CHECK(found.notes == std::vector<std::string>{"ignored by your own patterns alone, left out: "
                                                "mine; moorage cp brings them"});
}
