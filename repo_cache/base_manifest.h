// The manifest of a base tree: its contents, and for a delta the commit below it. Whole trees have
// their files in <commit>/tree, deltas in <commit>/delta. The names never swap, so a list of
// directories to mount stays valid while one form replaces the other. Only the manifest says which
// form is current.
#pragma once

#include <string>

#include "repo_cache/base_tree.h"

namespace moorage::repo_cache {

void write_manifest(const std::string& directory, const std::string& commit,
                    const BaseTreeInfo& info);  // atomic, not synced
// not_found, corrupted
BaseTreeInfo read_manifest(const std::string& directory, const std::string& commit);

// directory: trees/<commit>
std::string files_of(const std::string& directory, const BaseTreeInfo& info);

inline constexpr uint64_t kMaxIndexBytes = 2ull << 30;

// Facts that a later check compares with the tree.
std::string root_of(const std::string& tree);
uint64_t index_bytes_of(const std::string& tree);

}  // namespace moorage::repo_cache
