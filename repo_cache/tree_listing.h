// A commit's tree, flat: every file in index order, every directory with its place in the cache
// tree. Reading it refuses hostile trees: names that are ".git" to any file system, "..", "/",
// over-long names and paths, entries out of order. So the names in a listing are safe to create.
#pragma once

#include <git2/oid.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

struct git_repository;

namespace moorage::repo_cache {

struct ListedDirectory {
  std::string path;                      // "" = root
  git_oid oid;                           // of its tree
  uint32_t files_below = 0;              // submodules included
  std::vector<uint32_t> subdirectories;  // in tree order
};

struct ListedFile {
  std::string path;
  uint32_t name_at = 0;  // offset of the last part
  uint32_t mode = 0;     // one of kModeFile ... kModeSubmodule
  git_oid oid;
  const char* name() const { return path.c_str() + name_at; }
  std::string directory() const { return path.substr(0, name_at ? name_at - 1 : 0); }
};

struct TreeListing {
  std::vector<ListedDirectory> directories;  // parents first; [0] is the root
  std::vector<ListedFile> files;             // sorted by path
};

// Throws invalid_argument with the path for a hostile entry.
TreeListing list_tree(git_repository* repository, const std::string& commit);

// Calls `visit` with the path of each file that differs between two trees, from ids alone: added,
// removed or changed; a file in place of a directory and the files below that count each. False: it
// stopped, because visit() said so or after `limit` differing directories.
using DifferenceVisitor = std::function<bool(std::string_view path)>;
bool each_difference(git_repository* repository, const git_oid& from, const git_oid& to,
                     uint64_t limit, const DifferenceVisitor& visit);

// Counts them: stops after more than `limit` differing files or directories.
struct TreeDistance {
  uint64_t files = 0;       // added, removed or changed
  bool complete = true;     // false: there are more
  bool attributes = false;  // a .gitattributes is among those seen
};

TreeDistance measure_distance(git_repository* repository, const git_oid& from, const git_oid& to,
                              uint64_t limit);

// Refuses a hostile tree: throws invalid_argument with the path.
[[noreturn]] void refuse_path(std::string_view path, const std::string& why);
inline constexpr size_t kMaxTreeDepth = 1000;
inline constexpr size_t kMaxPathBytes = 4095;

// Throws for a name that must never be created; `mode` as in git.
void check_entry_name(std::string_view directory, std::string_view name, uint32_t mode);
// The path of an entry that may be created.
std::string checked_path(const std::string& directory, std::string_view name, uint32_t mode);
std::string child_path(const std::string& directory, std::string_view name);

}  // namespace moorage::repo_cache
