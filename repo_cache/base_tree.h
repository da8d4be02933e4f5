// Base trees: immutable checkouts, <root>/<repo>/trees/<commit>/tree with a working .git in it,
// shared by every workspace that starts at that commit. Content equals what `git checkout` gives
// with git's default configuration: symlinks, executable bits, line ends, ident,
// working-tree-encoding by the commit's own .gitattributes. Other filters (LFS) are not run and
// submodules are empty directories; both are counted. Written by several threads from the mirror's
// object database; files are born with their owner (D + 1000) and one constant time, older than the
// index, so the first `git status` hashes nothing. A tree is there whole or not at all (temporary
// name, rename). Not synced by write(): call sync() before it is relied on. Hostile trees (".git"
// in any disguise, "..", "/") are refused with the path in the message. A tree may be a delta: an
// overlay upper directory, <root>/<repo>/trees/<commit>/delta, over the tree of another commit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache {

struct BaseTreeInfo {
  uint64_t files = 0;  // symlinks included
  uint64_t directories = 0;
  uint64_t bytes = 0;          // of file contents as written
  uint32_t submodules = 0;     // left as empty directories
  uint32_t lfs_files = 0;      // left as pointer files (filter=lfs)
  uint32_t other_filters = 0;  // files with a filter that was not run
  // What a look at it must find again (whole()): the size of its index, and a hash of the names and
  // kinds at its root. Empty in a tree of an older release.
  uint64_t index_bytes = 0;
  std::string root;
  std::string parent;      // a delta's: the commit over whose tree it lies. Empty: a whole tree
  uint64_t own_files = 0;  // files and directories that lie in its own directory
  uint64_t own_bytes = 0;
};

// What an overlay needs to show a base tree.
struct BaseTreePlaces {
  std::string tree;                      // the whole tree at the bottom
  std::vector<std::string> deltas;       // on it, nearest first
  std::shared_ptr<const void> in_use{};  // held as long as these are read, or mounts are made
};
// trees: .../repos/repo_3/trees. Throws not_found, corrupted.
BaseTreePlaces base_tree_places(const std::string& trees, const std::string& commit);

inline constexpr size_t kMaxDeltas = 8;  // that lie on each other: a mount has room for few

struct DeltaInfo {
  uint64_t written = 0;
  uint64_t removed = 0;
  uint64_t bytes = 0;
};

class BaseTrees {
 public:
  explicit BaseTrees(const RepoCache& cache);
  ~BaseTrees();

  std::string directory(const std::string& repo,
                        const std::string& commit) const;  // .../trees/<commit>
  std::string tree_path(const std::string& repo,
                        const std::string& commit) const;  // .../trees/<commit>/tree
  BaseTreePlaces places(const std::string& repo, const std::string& commit) const;
  // Commits whose places() somebody still holds, whichever form of the tree these name.
  std::set<std::string> in_use(const std::string& repo) const;
  bool exists(const std::string& repo, const std::string& commit) const;
  // A cheap look: manifest, index and root are as they were written. A damaged tree is not
  // to be served. Of a delta itself, not of what it lies on; the same for damage().
  bool whole(const std::string& repo, const std::string& commit) const;
  // Every file is looked at. Empty: it is whole. Else what is wrong, for people.
  std::string damage(const std::string& repo, const std::string& commit) const;
  BaseTreeInfo info(const std::string& repo, const std::string& commit) const;  // not_found
  std::vector<std::string> list(const std::string& repo) const;                 // commits, sorted

  // Writes the tree unless it is there. One writer a tree: later callers wait for it. origin_url
  // goes into the tree's .git/config as remote "origin" ("" = no remote). `look` is asked every few
  // files or 4 MiB by any thread, and throws for it to end: then nothing is left. Files that
  // `old_index` has get the times in it: an index that a workspace made its own stays valid.
  BaseTreeInfo write(const std::string& repo, const std::string& commit,
                     const std::string& origin_url, Duration deadline,
                     const ProgressFunction& progress = {}, const std::function<void()>& look = {},
                     const std::string& old_index = {});
  // The index of a tree, for the above. Empty where it cannot be read or is damaged.
  std::string index(const std::string& repo, const std::string& commit) const;
  // The one that differs from `commit` in the fewest files, of those that differ in no more, and in
  // no more directories, than their limit. Empty: none does.
  struct Candidate {
    std::string commit;
    uint64_t limit = 0;
  };
  std::optional<std::string> nearest(const std::string& repo, const std::string& commit,
                                     const std::vector<Candidate>& candidates) const;
  // As write(), as a delta over the tree of another commit, which must be whole and must stay.
  BaseTreeInfo write_over(const std::string& repo, const std::string& commit,
                          const std::string& parent, Duration deadline);
  // Writes the whole tree beside a delta, synced, then lets it count. The delta's own directory
  // stays, as mounts may stand on it, until remove_old_form().
  BaseTreeInfo make_whole(const std::string& repo, const std::string& commit,
                          const std::string& origin_url, Duration deadline,
                          const std::function<void()>& look);
  bool has_old_form(const std::string& repo, const std::string& commit) const;  // or what was cut
  void remove_old_form(const std::string& repo, const std::string& commit);
  void sync(const std::string& repo, const std::string& commit) const;  // syncfs
  void remove(const std::string& repo, const std::string& commit);
  // Out of the way. Who may stand on it: sandboxes that run, and then it is kept until none does;
  // or nobody, as it is of an earlier boot.
  enum class StoodOn { maybe, no };
  void set_aside(const std::string& repo, const std::string& commit, StoodOn stood_on);
  static bool is_kept(const std::string& leftover);  // one that sandboxes may stand on
  std::vector<std::string> leftovers(const std::string& repo) const;  // of cut writes, and these
  void remove_leftover(const std::string& repo, const std::string& name);

  // Writes what differs between two commits into upper_fd, the root of an overlay upper directory
  // over a tree of from_commit: files (owner D + 1000), whiteouts (character device 0:0), opaque
  // directories where a directory takes the place of a file. .git is not touched. upper_fd is
  // borrowed, must be empty of these paths.
  DeltaInfo write_delta(const std::string& repo, const std::string& from_commit,
                        const std::string& to_commit, int upper_fd) const;

  // The same, and .git/HEAD and .git/index for to_commit (its HEAD detached there): an upper
  // directory that turns a tree of from_commit into one of to_commit.
  DeltaInfo write_delta_with_index(const std::string& repo, const std::string& from_commit,
                                   const std::string& to_commit, int upper_fd,
                                   BaseTreeInfo* shown = nullptr) const;

 private:
  struct Writers;
  struct Readers;
  const RepoCache& cache_;
  std::unique_ptr<Writers> writers_;
  std::unique_ptr<Readers> readers_;
};

}  // namespace moorage::repo_cache
