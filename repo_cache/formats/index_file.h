// Writes git's index (version 2, Documentation/gitformat-index.txt) with a valid TREE extension.
// libgit2 drops the cache tree at every added entry, and git would then rebuild it at the first
// commit. Of the stat data only mtime seconds and size are set: with core.checkStat=minimal git
// compares only these (read-cache.c, match_stat_data).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
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

// Reads an index written by make_index: path -> stat. Throws corrupted.
struct IndexedFile {
  std::string_view path;  // into `bytes`
  uint32_t mode = 0;
  git_oid oid;
  FileStat stat;
  size_t at = 0;  // offset of its entry in `bytes`
};
std::vector<IndexedFile> read_index(std::string_view bytes);

struct IndexChanges {
  struct Entry {
    uint32_t mode = 0;
    git_oid oid{};
    FileStat stat;
  };
  std::map<std::string, Entry> put;
  std::set<std::string> gone;  // files, and directories with everything below them
};

// Builds the index of a commit from another one's: copies entries of unchanged files and equal
// parts of the cache tree, so that the remaining cost depends on the size of the change.
struct MergedIndex {
  std::string bytes;
  std::vector<bool> replaced;  // of old_files: those changed or absent in it
  uint64_t directories = 0;
};
// read_tree: the entries of a tree of the new commit.
struct IndexTreeEntry {
  std::string name;
  bool is_tree = false;
  git_oid oid{};
};
std::vector<IndexTreeEntry> index_tree_entries(git_repository* repository, const git_oid& tree);
using ReadTree = std::function<std::vector<IndexTreeEntry>(const git_oid& tree)>;
MergedIndex merge_index(std::string_view old_bytes, const std::vector<IndexedFile>& old_files,
                        const IndexChanges& changes, const git_oid& root,
                        const ReadTree& read_tree);

}  // namespace moorage::repo_cache
