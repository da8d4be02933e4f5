// Counts the files that differ between two git trees, from ids alone. Bounded: it stops after more
// than `limit` differing files or directories.
#pragma once

#include <git2/oid.h>

#include <cstdint>

struct git_repository;

namespace moorage::repo_cache {

struct TreeDistance {
  uint64_t files = 0;       // added, removed or changed
  bool complete = true;     // false: there are more
  bool attributes = false;  // a .gitattributes is among those seen
};

TreeDistance measure_distance(git_repository* repository, const git_oid& from, const git_oid& to,
                              uint64_t limit);

}  // namespace moorage::repo_cache
