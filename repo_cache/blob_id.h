// Computes git's id of an open file piece by piece, to compare it with a commit without holding a
// blob of up to 2 GiB in memory. Private to this folder.
#pragma once

#include <optional>

#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

// Of its first `size` bytes, read with pread. nullopt: the file is shorter now, or the deadline
// passed.
std::optional<git_oid> blob_id(int fd, uint64_t size, TimeLimit deadline);

}  // namespace moorage::repo_cache
