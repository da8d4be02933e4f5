// The opened commit behind a CommitTree; private to commit_tree.cc and tree_diff.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/look_memory.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/memory_tree.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

struct CommitTree::State {
  State(const RepoCache& cache, const std::string& repo, const std::string& commit);

  GitTreeEntry find(std::string_view path) const { return entry_at(root.get(), std::string(path)); }
  // nullopt: not enough memory.
  std::optional<bool> equals_converted(const Conversion& conversion, const git_oid& oid, int fd,
                                       uint64_t size) const;
  // Paths in index order, each after `path` and a slash.
  void list_files(const git_oid& oid, const std::string& path,
                  std::vector<std::string>& files) const;

  MemoryRepository repository;
  GitTree root;
  mutable base::LookMemory compared{base::kAllLooksBytes};  // of one file and its conversion
  mutable PathAttributes attributes;
  mutable bool incomplete = false;
  TimeLimit deadline = TimeLimit::max();
};

}  // namespace moorage::repo_cache
