#include "cli/local/git_copy.h"

#include <catch2/catch.hpp>

using namespace moorage::cli;

TEST_CASE("only history of a .git comes along, and nothing that can name a program") {
  for (const char* kept : {"HEAD", "packed-refs", "refs/heads/main", "logs/HEAD", "info/exclude",
                           "objects/ab/cdef", "objects/pack/pack-1.pack", "MERGE_MSG"}) {
    INFO(kept);
    CHECK(keeps_git_file(kept));
  }
  for (const char* left :
       {"index", "sharedindex.ab12", "config", "config.worktree", "hooks/pre-commit", "commondir",
        "gitdir", "info/attributes", "info/grafts", "objects/info/alternates",
        "objects/info/http-alternates", "modules/sub/config", "worktrees/a/gitdir",
        "rebase-merge/git-rebase-todo", "sharedindex.a/config"}) {
    INFO(left);
    CHECK_FALSE(keeps_git_file(left));
  }
  for (const char* entered : {"refs", "refs/heads", "objects", "objects/info", "logs/refs", "info"})
    CHECK(enters_git_directory(entered));
  for (const char* closed : {"hooks", "modules", "worktrees", "info/x", "rebase-merge", "config"})
    CHECK_FALSE(enters_git_directory(closed));
}

TEST_CASE("a .git is known in any case of its letters") {
  CHECK(is_git_name(".git"));
  CHECK(is_git_name(".GiT"));
  for (const char* other : {"git", ".gitx", ".gi", "..git", ".git "})
    CHECK_FALSE(is_git_name(other));
}

TEST_CASE("a new configuration has a remote only for a plain URL") {
  CHECK(new_git_config("https://git.example/acme/shop.git")
            .find("url = \"https://git.example/acme/shop.git\"\n") != std::string::npos);
  for (const char* url :
       {"", "no-scheme", "ext::sh -c true", "https://x/\"\n[core]\n\tfsmonitor = y", "https://x/ y",
        "https://x/\\"}) {
    INFO(url);
    CHECK(new_git_config(url).find("remote") == std::string::npos);
  }
}

TEST_CASE("objects of every sandbox are known among alternates") {
  CHECK(borrows_objects("/.moorage/objects\n"));
  CHECK(borrows_objects("/else\n/.moorage/objects"));
  CHECK_FALSE(borrows_objects(""));
  CHECK_FALSE(borrows_objects("/.moorage/objects2\n"));
}
