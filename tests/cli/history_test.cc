#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "cli/local/bundle.h"
#include "local_scene.h"

using namespace moorage;
using namespace moorage::test::local;

namespace {

void commit(const std::string& repository, const std::string& message) {
  git(repository, {"commit", "-q", "--allow-empty", "-m", message});
}

std::string subjects(const Directory& directory, const std::string& ref) {
  return git(directory / "daemon", {"log", "--format=%s", ref});
}

}  // namespace

TEST_CASE("the history that a shallow checkout lacks is fetched by the caller's git") {
  Directory directory;
  make_upstream(directory);
  const std::string remote = GENERATE("origin", "company");
  clone(directory, "shallow", {"--depth=1", "--no-single-branch", "--origin=" + remote});
  git(directory / "shallow",
      {"config", "--add", "remote." + remote + ".fetch", "^refs/heads/none/*"});
  const std::string hook = directory / "hooks/reference-transaction";
  directory.put("hooks/reference-transaction", "#!/bin/sh\ntouch " + (directory / "ran") + "\n");
  REQUIRE(::chmod(hook.c_str(), 0755) == 0);
  git(directory / "shallow", {"config", "core.hooksPath", directory / "hooks"});
  directory.put("shallow/README", "changed\n");
  const std::string head = git(directory / "shallow", {"rev-parse", "HEAD"});
  LocalBundle bundle(directory / "shallow");
  receive(pack(bundle), directory / "daemon");
  CHECK(bundle.head_commit() == head);
  CHECK(subjects(directory, "refs/moorage/head") == "second\nfirst");
  CHECK(git(directory / "shallow", {"rev-parse", "--is-shallow-repository"}) == "true");
  CHECK(has_note(bundle, "was fetched from " + remote));
  CHECK_FALSE(base::path_exists(directory / "ran"));
  CHECK(git(directory / "daemon",
            {"diff", "--name-only", "refs/moorage/head", "refs/moorage/work"}) == "README");
}

TEST_CASE(
    "every cut of a shallow checkout is fetched, also that of a branch that upstream dropped") {
  Directory directory;
  make_upstream(directory);
  git(directory / "upstream", {"switch", "-q", "--orphan", "release"});
  for (const char* message : {"r1", "r2"}) commit(directory / "upstream", message);
  clone(directory, "shallow", {"--depth=1", "--branch=main"});
  git(directory / "shallow", {"fetch", "-q", "--depth=1", "origin", "release:release"});
  git(directory / "upstream", {"switch", "-q", "main"});
  git(directory / "upstream", {"branch", "-q", "-D", "release"});
  LocalBundle bundle(directory / "shallow");
  receive(pack(bundle), directory / "daemon");
  CHECK(subjects(directory, "refs/heads/main") == "second\nfirst");
  CHECK(subjects(directory, "refs/heads/release") == "r2\nr1");
  CHECK(has_note(bundle, "was fetched from origin"));
}

TEST_CASE(
    "where older history cannot be fetched, branches, tags and own commits start at the cut") {
  Directory directory;
  make_upstream(directory);
  commit(directory / "upstream", "third");
  clone(directory, "shallow", {"--depth=2"});
  const std::string top = directory / "shallow";
  git(top, {"branch", "topic"});
  commit(top, "own");
  git(top, {"tag", "-a", "-m", "mine", "v2"});
  git(top, {"switch", "-q", "--orphan", "whole"});
  directory.put("shallow/alone", "x\n");
  git(top, {"add", "-A"});
  commit(top, "alone");
  const std::string whole = git(top, {"rev-parse", "whole"});
  const bool on_whole = GENERATE(false, true);
  if (!on_whole) git(top, {"switch", "-q", "main"});
  const std::string tree = git(top, {"rev-parse", "main^{tree}"});
  std::string reason = "it has no remote";
  if (GENERATE(false, true)) {
    git(top, {"remote", "set-url", "origin", "file:///nonexistent"});
    reason = "'/nonexistent' does not appear to be a git repository";
  } else {
    git(top, {"remote", "remove", "origin"});
  }
  LocalBundle bundle(top);
  receive(pack(bundle), directory / "daemon");
  CHECK(subjects(directory, "refs/heads/main") == "own\nthird\nsecond");
  CHECK(subjects(directory, "refs/heads/topic") == "third\nsecond");
  CHECK(git(directory / "daemon", {"describe", "refs/heads/main"}) == "v2");
  CHECK(git(directory / "daemon", {"rev-parse", "refs/heads/main^{tree}"}) == tree);
  CHECK(git(directory / "daemon", {"merge-base", "main", "topic"}) ==
        git(directory / "daemon", {"rev-parse", "topic"}));
  CHECK(git(directory / "daemon", {"rev-parse", "refs/heads/whole"}) == whole);
  CHECK(bundle.head_commit() ==
        git(directory / "daemon", {"rev-parse", on_whole ? "whole" : "main"}));
  CHECK(has_note(bundle, "older history cannot be fetched (" + reason + ")"));
  CHECK(has_note(bundle, "other commit ids in refs/heads/main, "));
  CHECK(has_note(bundle, ", HEAD") == !on_whole);
  CHECK_FALSE(has_note(bundle, "whole"));
  SECTION("with the same ids the next time") {
    LocalBundle again(top);
    receive(pack(again, {bundle.head_commit()}), directory / "daemon");
    CHECK(again.head_commit() == bundle.head_commit());
  }
}

TEST_CASE("a shallow clone of a shallow clone gets the history that its source has") {
  Directory directory;
  make_upstream(directory);
  commit(directory / "upstream", "third");
  clone(directory, "source", {"--depth=2"});
  git("/", {"clone", "-q", "--depth=1", "file://" + (directory / "source"), directory / "shallow"});
  LocalBundle bundle(directory / "shallow");
  receive(pack(bundle), directory / "daemon");
  CHECK(subjects(directory, "refs/heads/main") == "third\nsecond");
  CHECK(has_note(bundle, "older history cannot be fetched (it is not in origin)"));
}

TEST_CASE("a linked worktree of a shallow clone, and one made whole later, bring their history") {
  Directory directory;
  make_upstream(directory);
  clone(directory, "shallow", {"--depth=1"});
  SECTION("a linked worktree") {
    git(directory / "shallow", {"worktree", "add", "-q", "-b", "topic", directory / "linked"});
    LocalBundle bundle(directory / "linked");
    receive(pack(bundle), directory / "daemon");
    CHECK(has_note(bundle, "was fetched from origin"));
  }
  SECTION("made whole") {
    git(directory / "shallow", {"branch", "topic"});
    git(directory / "shallow", {"fetch", "-q", "--unshallow"});
    LocalBundle bundle(directory / "shallow");
    receive(pack(bundle), directory / "daemon");
    CHECK(bundle.notes() == std::vector<std::string>{"remotes stay here: origin"});
  }
  CHECK(subjects(directory, "refs/heads/topic") == "second\nfirst");
}

TEST_CASE("the objects that a partial clone lacks are fetched") {
  Directory directory;
  make_upstream(directory);
  const std::string filter = GENERATE("blob:none", "tree:0");
  clone(directory, "partial", {"--filter=" + filter});
  directory.put("partial/second", "changed\n");
  const std::string objects = git(directory / "partial", {"count-objects", "-v"});
  LocalBundle bundle(directory / "partial");
  receive(pack(bundle), directory / "daemon");
  CHECK(git(directory / "daemon", {"show", "refs/moorage/head~1:README"}) == "one");
  CHECK(git(directory / "partial", {"count-objects", "-v"}) == objects);
}

TEST_CASE("the files of a partial clone arrive although what it lacks cannot be fetched") {
  Directory directory;
  make_upstream(directory);
  const std::string depth = GENERATE("--depth=100", "--depth=1");
  clone(directory, "partial", {"--filter=blob:none", depth});
  directory.put("partial/second", "changed\n");
  git(directory / "partial", {"remote", "set-url", "origin", "file:///nonexistent"});
  LocalBundle bundle(directory / "partial");
  receive(pack(bundle), directory / "daemon");
  CHECK(git(directory / "daemon", {"show", "refs/moorage/work:second"}) == "changed");
  CHECK(git(directory / "daemon", {"show", "refs/moorage/head:README"}) == "two");
  CHECK(has_note(bundle, depth == "--depth=1" ? "history starts at the cut"
                                              : "without history, branches and tags"));
}
