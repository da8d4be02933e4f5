// Changes of a workspace against its base commit, from the list of differing paths: walks no tree,
// so the cost depends on the number of changes. New trees and blobs live in memory only; the mirror
// is never written. Converts contents from the worktree like `git add` (line ends, ident,
// encoding), by the commit's .gitattributes (and those among the changes). Paths are raw bytes,
// relative, "/" between parts. Memory for contents and text diffs is charged in advance
// (base/look_memory.h), as contents and commits are untrusted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/os/fd.h"
#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache {

struct Stored {
  std::string oid;  // a blob of the mirror
};
using Content = std::variant<Fd, std::string, Stored>;  // first: an open regular file

inline constexpr uint32_t kModeFile = 0100644;
inline constexpr uint32_t kModeExecutable = 0100755;
inline constexpr uint32_t kModeSymlink = 0120000;  // content: the target
inline constexpr uint32_t kModeSubmodule = 0160000;

struct Change {
  std::string path;
  bool removed = false;       // a file, or a directory with everything below it
  uint32_t mode = kModeFile;  // one of the first three above
  // Called when needed, once (for a .gitattributes twice); unused if removed.
  std::function<Content()> content;
};

struct DiffStat {
  std::string path;
  uint64_t added = 0, removed = 0;  // lines
  bool binary = false;
  std::string change;         // "added", "modified", "deleted", "mode", "type"
  uint64_t bytes_before = 0;  // in git or, if too large, in the worktree; 0: absent
  uint64_t bytes_after = 0;
  std::string left_out;  // LeftOut::kName or kNested: no patch has it; else empty
};

// Two worktrees, each a commit of the same mirror with changes. Both lists may omit a file that
// both have changed alike.
struct TwoTrees {
  std::vector<Change> before;
  std::vector<Change> after;
  std::string after_commit;       // empty: before_commit
  std::vector<std::string> only;  // files and directories to compare; empty: all
};

// A file that a patch lacks, or (kConverted) does not give byte for byte.
struct LeftOut {
  static constexpr const char* kTooLarge = "too_large";     // alone, too
  static constexpr const char* kFull = "full";              // the patch has no room for it
  static constexpr const char* kName = "name";              // git refuses it: ".git", "git~1"
  static constexpr const char* kUnreadable = "unreadable";  // git lacks an object, or it is damaged
  static constexpr const char* kNested = "nested";          // a repository in the repository
  static constexpr const char* kConverted = "converted";    // git may write other bytes
  std::string path;
  std::string why;
  uint64_t bytes = 0;  // of the larger version
  bool removed = false;
};

struct Patch {
  std::string text;
  std::vector<LeftOut> left_out;  // sorted by path
};

// In a patch, of binary data that does not compress: a line has 52 bytes of it.
constexpr uint64_t binary_text_bytes(uint64_t bytes) { return bytes * 67 / 52; }

// Whether the list contains this path or a directory above it; an empty list: always.
bool is_selected(std::string_view path, const std::vector<std::string>& only);

using TimeLimit = std::chrono::steady_clock::time_point;

// A file beyond the first three, or beyond the memory of one diff, is left out of a patch, and
// "binary" for stat(). A file with too many lines for a text diff is "binary" in both. Only if
// other operations take the memory, patch() throws resource_exhausted.
struct DiffLimits {
  uint64_t max_file_bytes = 32ull << 20;     // no larger one fits the memory
  uint64_t max_changed_bytes = 64ull << 20;  // of contents in memory at the same time
  uint64_t max_patch_bytes = 64ull << 20;
  uint64_t held_bytes = 0;                // of the memory, by the caller meanwhile
  size_t part_files = 256;                // compared at a time; fewer if they are large
  TimeLimit deadline = TimeLimit::max();  // later contents are not read
};

// Larger files are stored without conversion.
inline constexpr uint64_t kMaxConvertedBytes = 8 << 20;

struct TreeEntry {
  uint32_t mode = 0;
  std::string oid;
  uint64_t size = 0;  // of the blob; 0 for trees and submodules
};

// One commit of one mirror, opened once for several queries. Not for two threads at a time.
class CommitTree {
 public:
  CommitTree(const RepoCache& cache, const std::string& repo, const std::string& commit);
  ~CommitTree();
  CommitTree(CommitTree&&) noexcept;
  CommitTree& operator=(CommitTree&&) noexcept;

  std::optional<TreeEntry> lookup(std::string_view path) const;  // of directories, too: 040000
  bool is_tracked(std::string_view path) const;  // a file, symlink or submodule of the commit
  // As stored in git, without conversion.
  std::string read_blob(std::string_view path, uint64_t max_bytes) const;
  std::string checked_out(std::string_view path, uint64_t max_bytes) const;  // with conversion
  // Whether a worktree file with this content and mode equals the commit's. fd is borrowed, read
  // with pread. Compares ids without reading the committed file, like git. Compares a file over
  // kMaxConvertedBytes without conversion.
  bool content_equals(std::string_view path, uint32_t mode, int fd) const;
  void set_deadline(TimeLimit deadline);  // of content_equals: false afterwards, and incomplete()
  bool late() const;
  bool incomplete() const;        // content_equals skipped conversions for lack of memory or time
  uint64_t memory_bytes() const;  // charged until its end
  bool link_equals(std::string_view path, std::string_view target) const;
  // Paths of files below a directory of the commit ("" = all), in index order.
  std::vector<std::string> files_below(std::string_view directory) const;
  // Calls `visit` with the path of each file that another commit of this mirror has differently, or
  // only one of them has. False: visit() stopped it, or too many directories differ.
  bool each_difference(const CommitTree& other,
                       const std::function<bool(std::string_view path)>& visit) const;

  // A patch for `git apply --binary`: binary files, modes, symlinks; no renames.
  Patch patch(std::vector<Change> changes, const DiffLimits& limits = {}) const;
  std::vector<DiffStat> stat(std::vector<Change> changes, const DiffLimits& limits = {}) const;
  // The same, from one worktree to another; `before` is based on this commit.
  Patch patch_between(TwoTrees trees, const DiffLimits& limits = {}) const;
  std::vector<DiffStat> stat_between(TwoTrees trees, const DiffLimits& limits = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::repo_cache
