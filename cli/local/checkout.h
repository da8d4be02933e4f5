// A directory of the caller's, as git sees it: a checkout, a linked worktree, a subdirectory
// (meaning the whole repository), or a plain directory. Only read, never changed.
#pragma once

#include <string>
#include <vector>

#include "cli/local/git_calls.h"

namespace moorage::cli {

struct Checkout {
  std::string top;  // absolute; the label of the import
  std::string
      git_dir;  // its own, in a linked worktree not the common one; empty: a plain directory
  std::string objects;  // empty: a plain directory
  bool is_plain() const { return git_dir.empty(); }
  GitCall call() const { return {top, {{"GIT_DIR", git_dir}, {"GIT_WORK_TREE", top}}, {}}; }
};

// Throws invalid_argument, permission_denied or unsupported if the directory cannot be imported.
Checkout find_checkout(const std::string& directory);

// Its commit; empty: none yet.
std::string head_of(const Checkout& checkout);
// A file of its git directory; relative answers of git made absolute.
std::string git_path(const Checkout& checkout, const std::string& name);
bool is_shallow(const Checkout& checkout);
std::vector<std::string> remotes_of(const Checkout& checkout);
// The remote that a partial clone gets missing objects from; empty: it is complete.
std::string promisor_of(const Checkout& checkout);
// "origin", or what stands for it: the remote of the present branch, or the first one. Empty: none.
std::string remote_of(const Checkout& checkout);
// The URL of that remote without credentials; empty: none, or not in a network.
std::string origin_of(const Checkout& checkout);

struct Ref {
  std::string name;  // "refs/heads/main"
  std::string oid;
};
// Branches, tags and remote branches, without symbolic ones.
std::vector<Ref> refs_of(const Checkout& checkout);

// Sentences on what of its state no workspace has: a merge in progress, staged changes, settings.
std::vector<std::string> left_behind(const Checkout& checkout, const std::string& head);

}  // namespace moorage::cli
