// Which paths of a workspace may differ from its base commit, and where their contents are: the
// uppers of its layers (layer_walk.h) laid over the commit's tree. Nothing is compared here, so a
// file that was only touched is in it. Left out: .git at the top, untracked files that git would
// ignore (their directories are not even walked), the inside of submodules and of nested
// repositories.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "repo_cache/ignore.h"
#include "repo_cache/tree_diff.h"
#include "workspace/layer_walk.h"

namespace moorage::workspace {

struct PresentFile {
  bool from_base = false;  // renamed along with its directory: source.path is its path in the base
  UpperDirectory source;
  uint32_t mode = 0;  // one of git's three
};

class ChangeSet {
 public:
  ChangeSet(LayerWalk& walk, const repo_cache::CommitTree& commit);

  const std::map<std::string, PresentFile>& present() const { return present_; }
  const std::set<std::string>& deleted() const { return deleted_; }  // files and submodules
  const std::set<std::string>& nested() const {
    return nested_;
  }  // untracked repositories: "vendor/"

 private:
  bool tracked_directory(const std::string& path) const;
  void visit(const MergedDirectory& directory);
  void visit_entry(const MergedDirectory& parent, const std::string& name,
                   const MergedEntry& entry);
  void enter(const MergedDirectory& parent, const std::string& name, MergedDirectory directory);
  void add_file(const MergedEntry& entry, const std::string& path);
  void hide(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void load_ignore_file(const MergedDirectory& directory, LayerWalk::Open& open);
  void find_deleted();

  LayerWalk& walk_;
  const repo_cache::CommitTree& commit_;
  repo_cache::IgnoreRules ignore_;
  std::vector<MergedDirectory> pending_;
  bool in_tracked_ = true;  // the commit has the directory being visited
  std::map<std::string, PresentFile> present_;
  std::set<std::string>
      hidden_;  // what the base has there and below is not to be seen, unless present
  std::set<std::string> deleted_;
  std::set<std::string> nested_;
};

}  // namespace moorage::workspace
