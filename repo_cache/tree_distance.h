// How many files differ between two trees of git, told by their ids alone. Bounded in work: it ends
// where more than `limit` files, or directories that differ, were met.
#pragma once

#include <git2/oid.h>

#include <cstdint>

struct git_repository;

namespace moorage::repo_cache {

struct TreeDistance {
  uint64_t files = 0;       // added, removed or changed
  bool complete = true;     // false: there are more
  bool attributes = false;  // a .gitattributes is among them, as far as was looked
};

TreeDistance measure_distance(git_repository* repository, const git_oid& from, const git_oid& to,
                              uint64_t limit);

}  // namespace moorage::repo_cache
