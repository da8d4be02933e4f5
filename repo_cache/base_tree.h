// Base trees: immutable checkouts, <root>/<repo>/trees/<commit>/tree with a working .git in it,
// shared by every workspace that starts at that commit. Content equals that of `git checkout` with
// git's default configuration: symlinks, executable bits, line ends, ident, working-tree-encoding
// by the commit's own .gitattributes. Other filters (LFS) are not run and submodules are empty
// directories; both are counted. Several threads write it from the mirror's object database; files
// are created with their owner (D + 1000) and one constant time, older than the index, so the first
// `git status` hashes nothing. A tree appears by rename, complete. write() does not sync: call
// sync() before relying on it. Hostile trees (".git" in any disguise, "..", "/") are refused with
// the path in the message. A tree may be a delta: an overlay upper directory,
// <root>/<repo>/trees/<commit>/delta, over the tree of another commit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/keyed_mutex.h"
#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache {

struct BaseTreeInfo {
  uint64_t files = 0;  // symlinks included
  uint64_t directories = 0;
  uint64_t bytes = 0;          // of file contents as written
  uint32_t submodules = 0;     // left as empty directories
  uint32_t lfs_files = 0;      // left as pointer files (filter=lfs)
  uint32_t other_filters = 0;  // files with a filter that was not run
  // Compared by whole(): the size of its index, and a hash of the names and kinds at its root.
  // Empty in a tree of an older release.
  uint64_t index_bytes = 0;
  std::string root;
  std::string parent;      // of a delta: commit of the tree below it. Empty: a whole tree
  uint64_t own_files = 0;  // files and directories in its own directory
  uint64_t own_bytes = 0;
};

// The directories that an overlay needs to show a base tree.
struct BaseTreePlaces {
  std::string tree;                      // the whole tree at the bottom
  std::vector<std::string> deltas;       // over it, nearest first
  std::shared_ptr<const void> in_use{};  // held while these are read or mounts are made
};
// trees: .../repos/repo_3/trees. Throws not_found, corrupted.
BaseTreePlaces base_tree_places(const std::string& trees, const std::string& commit);

inline constexpr size_t kMaxDeltas = 8;  // in one stack: a mount has room for few

struct DeltaInfo {
  uint64_t written = 0;
  uint64_t removed = 0;
  uint64_t bytes = 0;
};

class BaseTrees {
 public:
  explicit BaseTrees(const RepoCache& cache) : cache_(cache) {}

  std::string directory(const std::string& repo,
                        const std::string& commit) const;  // .../trees/<commit>
  BaseTreePlaces places(const std::string& repo, const std::string& commit) const;
  // Commits whose places() are still held, in either form of the tree.
  std::set<std::string> in_use(const std::string& repo) const;
  bool exists(const std::string& repo, const std::string& commit) const;
  // A cheap check: manifest, index and root are unchanged. Never use a damaged tree. Checks only a
  // delta itself, not the trees below it; the same for damage().
  bool whole(const std::string& repo, const std::string& commit) const;
  // Checks every file. Empty: undamaged. Else the damage, for people.
  std::string damage(const std::string& repo, const std::string& commit) const;
  BaseTreeInfo info(const std::string& repo, const std::string& commit) const;  // not_found
  std::vector<std::string> list(const std::string& repo) const;                 // commits, sorted

  // Writes the tree unless it exists. One writer per tree: later callers wait for it. origin_url
  // goes into the tree's .git/config as remote "origin" ("" = no remote). Any thread calls
  // `check_room` every few files or 4 MiB; it throws to cancel, which leaves nothing. Files in
  // `old_index` get their times from it, so that an index copied by a workspace stays valid.
  BaseTreeInfo write(const std::string& repo, const std::string& commit,
                     const std::string& origin_url, Duration deadline,
                     const ProgressFunction& progress = {},
                     const std::function<void()>& check_room = {},
                     const std::string& old_index = {});
  // The index of a tree, for write(). Empty if unreadable or damaged.
  std::string index(const std::string& repo, const std::string& commit) const;
  // The candidate that differs from `commit` in the fewest files, within its limits of files and
  // directories. Empty: none.
  struct Candidate {
    std::string commit;
    uint64_t limit = 0;
  };
  std::optional<std::string> nearest(const std::string& repo, const std::string& commit,
                                     const std::vector<Candidate>& candidates) const;
  // Like write(), but a delta over another commit's tree, which must be whole and must stay.
  BaseTreeInfo write_over(const std::string& repo, const std::string& commit,
                          const std::string& parent, Duration deadline);
  // Writes the whole tree beside a delta, syncs it, then makes it current. The delta's own
  // directory stays until remove_old_form(), as mounts may use it.
  BaseTreeInfo make_whole(const std::string& repo, const std::string& commit,
                          const std::string& origin_url, Duration deadline,
                          const std::function<void()>& check_room);
  bool has_old_form(const std::string& repo, const std::string& commit) const;  // or a part of one
  void remove_old_form(const std::string& repo, const std::string& commit);
  void sync(const std::string& repo, const std::string& commit) const;  // syncfs
  void remove(const std::string& repo, const std::string& commit);
  // Whether running sandboxes may still use a tree that is moved away: then it is kept until they
  // end. Not if it is from an earlier boot.
  enum class StoodOn { maybe, no };
  void set_aside(const std::string& repo, const std::string& commit, StoodOn stood_on);
  static bool is_kept(const std::string& leftover);                   // sandboxes may use it
  std::vector<std::string> leftovers(const std::string& repo) const;  // and kept trees
  void remove_leftover(const std::string& repo, const std::string& name);

  // For a workspace on uncommitted work (work_files.cc). Writes the files of raw_commit that a
  // checkout of work_commit does not give into upper_fd, the root of an overlay upper directory
  // over the tree of work_commit; returns how many. The trees may be the same: checkouts convert
  // files that are stored unchanged. invalid_argument: other files than in work_commit.
  uint64_t write_raw_files(const std::string& repo, const std::string& work_commit,
                           const std::string& raw_commit, int upper_fd) const;
  // An index of head_commit over the tree of work_commit, which must exist, and the files of
  // raw_commit, which may be empty.
  std::string index_at(const std::string& repo, const std::string& work_commit,
                       const std::string& head_commit, const std::string& raw_commit) const;

  // Writes the difference of two commits into upper_fd, the root of an overlay upper directory over
  // a tree of from_commit: files (owner D + 1000), whiteouts (character device 0:0), opaque
  // directories where a directory replaces a file, .git/HEAD and .git/index for to_commit (its HEAD
  // detached there). It turns a tree of from_commit into one of to_commit. upper_fd is borrowed and
  // must not contain these paths.
  DeltaInfo write_delta_with_index(const std::string& repo, const std::string& from_commit,
                                   const std::string& to_commit, int upper_fd,
                                   BaseTreeInfo* shown = nullptr) const;

 private:
  const RepoCache& cache_;
  base::KeyedMutex writers_;
  mutable std::mutex mutex_;  // of readers_
  // By repo and commit.
  mutable std::map<std::string, std::map<std::string, std::weak_ptr<const void>>> readers_;
};

}  // namespace moorage::repo_cache
