// A copy of a tree that arrived here (trees.h), for a sandbox without overlays: each file is its
// own, so that commands cannot change the tree. Contents are shared where the file system can share
// them (FICLONE). Hard links within the tree are kept, up to kMaxCopiedLinks files with several
// names; beyond that they become copies.
#pragma once

#include <cstddef>
#include <string>

namespace moorage::outpost {

inline constexpr size_t kMaxCopiedLinks = 200'000;

// `to` exists; it gets owner, mode and times of `from`. Entries that are there already are kept:
// objects are never changed, only added. Nobody else changes either tree meanwhile.
void copy_tree(const std::string& from, const std::string& to);

// Removes everything in a directory that commands may have written to.
void remove_contents(const std::string& path);

}  // namespace moorage::outpost
