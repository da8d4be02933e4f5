// A git repository, its mirror, a checkout of its first commit made by git itself as base tree, and
// a workspace over it. Only inside layers::in_own_namespace(): the workspace needs a path, as git
// cannot work in a detached mount.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/os/process.h"
#include "layers/storage_fixture.h"
#include "repo_cache/repo_cache.h"
#include "workspace/changes/changes.h"

namespace moorage::workspace {

class ChangesFixture {
 public:
  // `fill` makes the files of the commit in the given directory.
  explicit ChangesFixture(const std::function<void(const std::string&)>& fill);
  ~ChangesFixture();

  std::string git(const std::string& directory, std::vector<std::string> arguments);
  std::string run(const std::string& directory,
                  const std::vector<std::string>& argv);  // as the agent
  // Upstream commits what this shell script does to its tree; the mirror and the workspace's git
  // get the commit, and the changes are counted from it.
  void commit_upstream(const std::string& script);
  void freeze();  // freezes the writable layer and puts a new one on top

  // "D path", "? path", "M path", "T path", from git and from our code.
  std::set<std::string> status_of_git();
  std::set<std::string> our_status();
  // The tree that git would commit, from the workspace and from a clean checkout with the patch
  // applied. Lines "mode oid 0\tpath".
  std::set<std::string> tree_of_workspace();
  std::set<std::string> tree_after_patch(const std::string& patch);

  layers::TemporaryDirectory directory;
  std::string tree = directory.path() + "/workspace";  // the mounted workspace
  std::unique_ptr<repo_cache::RepoCache> repos;
  std::unique_ptr<Changes> changes;
  ChangeSource source;

 private:
  std::unique_ptr<layers::Storage> storage_ =
      layers::make_overlay_storage({.store = directory.path()});
  layers::Chain chain_;
  int clean_checkouts_ = 0;
};

}  // namespace moorage::workspace
