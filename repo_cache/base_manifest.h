// The manifest of a base tree: what was written, and for a delta over which commit's tree. Whole
// trees have their files in <commit>/tree, deltas in <commit>/delta: neither name ever stands for
// the other form, so a list of directories to mount stays right while one form takes the other's
// place. The manifest alone says which of the two counts.
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

// What a look at a tree must find again.
std::string root_of(const std::string& tree);
uint64_t index_bytes_of(const std::string& tree);

}  // namespace moorage::repo_cache
