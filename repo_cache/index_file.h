// Git's index (version 2, Documentation/gitformat-index.txt) with a valid TREE extension, written
// by ourselves: libgit2 drops the cache tree at every added entry, and git would then build it anew
// on the first commit. Of the stat data only mtime seconds and size are filled: with
// core.checkStat=minimal git compares no more (read-cache.c, match_stat_data).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "repo_cache/tree_listing.h"

namespace moorage::repo_cache {

struct FileStat {
  uint32_t mtime_s = 0;
  uint32_t size = 0;  // as on disk, modulo 2^32; 0 for submodules
};

// stats: one for each of listing.files.
std::string make_index(const TreeListing& listing, const std::vector<FileStat>& stats);

// What make_index wrote: path -> stat. Throws corrupted.
struct IndexedFile {
  std::string_view path;  // into `bytes`
  uint32_t mode = 0;
  git_oid oid;
  FileStat stat;
};
std::vector<IndexedFile> read_index(std::string_view bytes);

}  // namespace moorage::repo_cache
