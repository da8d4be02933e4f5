// The id that git gives to a file's bytes, of an open file, piece by piece: whether it is what a
// commit has is then known without a blob in memory, which may have 2 GiB. Private to this folder.
#pragma once

#include <optional>

#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

// Of its first `size` bytes, read with pread. nullopt: it is shorter by now, or it is past the
// deadline.
std::optional<git_oid> blob_id(int fd, uint64_t size, Deadline deadline);

}  // namespace moorage::repo_cache
