// A changed tree that exists in memory only: new blobs and trees go to a mempack in front of the
// mirror's objects.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "repo_cache/attributes.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

// A mirror opened so that writes stay in this process. Not for two threads at a time.
class MemoryRepository {
 public:
  explicit MemoryRepository(const std::string& git_directory);
  git_repository* get() const { return repository_.get(); }
  git_odb* odb() const { return odb_.get(); }
  void forget_writes() const;

 private:
  GitRepository repository_;
  GitOdb odb_;
  git_odb_backend* mempack_ = nullptr;  // owned by odb_
};

// Attributes read along the paths that are asked for, one .gitattributes at a time.
class PathAttributes {
 public:
  PathAttributes(git_repository* repository, git_tree* root)
      : repository_(repository), root_(root) {}
  void replace(const std::string& directory, std::string_view bytes);  // instead of the commit's
  Conversion conversion(const std::string& path);

 private:
  void load(const std::string& directory);

  git_repository* repository_;
  git_tree* root_;
  std::map<std::string, bool, std::less<>> loaded_;
  Attributes attributes_;
};

std::string read_content(Content content, uint64_t max_bytes, const std::string& path);

// The tree of `root` with the changes in it; files over max_file_bytes get a stand-in (one that
// equals no other kind of stand-in), or are refused. Names that git refuses (".git" in any
// spelling) are left out, as `git add` does.
enum class Oversized { refuse, stand_in, another_stand_in };
GitTree apply_changes(const MemoryRepository& repository, git_tree* root,
                      std::vector<Change> changes, const DiffLimits& limits, Oversized oversized);

}  // namespace moorage::repo_cache
