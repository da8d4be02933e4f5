// The paths of a workspace that may differ from a commit, and where their contents are: the uppers
// of its layers (layers/walk.h) over the tree of its base commit. The commit is that one, or a
// newer one that the agent rebased on: then files that differ between the two are included. Nothing
// is compared here, so files that were only touched are included. Left out: .git at the top,
// untracked files that git would ignore (their directories are not even walked), the inside of
// submodules and of nested repositories. The agent controls the number of paths, so memory has a
// budget (base/look_memory.h), and the walk a deadline: beyond either the rest is left out, and
// truncated() says so.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "layers/walk.h"
#include "repo_cache/formats/ignore.h"
#include "repo_cache/tree_diff.h"

namespace moorage::workspace {

struct PresentFile {
  bool from_base = false;  // source.path is its path in the base: renamed along with its directory,
                           // or the other commit has it differently
  layers::UpperDirectory source;  // empty path: the same as in the workspace
  uint32_t mode = 0;              // one of git's three file modes
};

struct ChangeSetLimits {
  uint64_t max_memory_bytes = 64 << 20;
  std::chrono::milliseconds walk_time{20'000};
};

class ChangeSet {
 public:
  // `numbers` only counts untracked files and nested repositories, without storing them.
  enum class Remember { paths, numbers };
  // `base` is the tree below the layers.
  ChangeSet(layers::LayerWalk& walk, const repo_cache::CommitTree& base,
            const repo_cache::CommitTree& commit, Remember remember, const ChangeSetLimits& limits);

  bool truncated() const { return truncated_; }
  uint64_t memory_bytes() const { return memory_.used_bytes(); }
  uint64_t counted() const { return counted_; }  // entries in none of the three below
  const std::map<std::string, PresentFile>& present() const { return present_; }
  const std::set<std::string>& deleted() const { return deleted_; }  // files and submodules
  const std::set<std::string>& nested() const {
    return nested_;
  }  // untracked repositories: "vendor/"

 private:
  bool afford(uint64_t bytes);
  bool late();
  bool tracked_directory(const std::string& path) const;
  void visit(const layers::MergedDirectory& directory);
  void visit_entry(const layers::MergedDirectory& parent, const std::string& name,
                   const layers::MergedEntry& entry);
  void enter(const layers::MergedDirectory& parent, const std::string& name,
             layers::MergedDirectory directory);
  void add_file(const layers::MergedEntry& entry, const std::string& path);
  void hide(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void load_ignore_file(const layers::MergedDirectory& directory, layers::LayerWalk::Open& open);
  void add_ignore_file(const std::string& directory, const std::string& bytes);
  bool is_hidden(const std::string& path) const;
  void find_deleted();
  void add_difference(const std::string& path);
  void add_differences();

  layers::LayerWalk& walk_;
  const repo_cache::CommitTree& base_;
  const repo_cache::CommitTree& commit_;
  const Remember remember_;
  const std::chrono::steady_clock::time_point deadline_;
  base::LookMemory memory_;
  uint64_t counted_ = 0;
  bool truncated_ = false;
  repo_cache::IgnoreRules ignore_;
  std::vector<layers::MergedDirectory> pending_;
  bool in_tracked_ = true;            // the commit contains the current directory
  std::set<std::string> submodules_;  // of the commit, with a directory in an upper
  std::map<std::string, PresentFile> present_;
  // Path and mode in the base: hides that path and everything below it, unless present.
  std::map<std::string, uint32_t> hidden_;
  std::set<std::string> deleted_;
  std::set<std::string> nested_;
};

}  // namespace moorage::workspace
