// The changes in a workspace, from its upper directories alone: the cost depends on the changes,
// not on the repository. Understands whiteouts, opaque directories and redirects; ignores copied-up
// but unchanged files; leaves out ignored untracked files like git (.gitignore files are read as
// data). It never reads the agent's .git directory, so "untracked" means: not in the base commit. A
// tree that changes meanwhile is walked again, at most three times; then the last walk counts, and
// a patch throws conflict if a file that it needs is gone. Memory and time have limits
// (change_set.h): the comparison may take as long as the walk, a patch as long again. The agent
// controls how long it takes, so it runs at background priority (base/background.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "workspace/changes/change_set.h"

namespace moorage::workspace {

enum class ChangeKind { modified, deleted, mode, type, untracked };
inline constexpr std::array<std::string_view, 5> kChangeNames{"modified", "deleted", "mode", "type",
                                                              "untracked"};

struct Change {
  std::string path;  // raw bytes, relative to /workspace
  ChangeKind kind = ChangeKind::modified;
  uint32_t mode_before = 0;  // one of git's file modes; 0: absent
  uint32_t mode_after = 0;
};

struct ChangeList {
  // Sorted by path. Files; a directory only for an untracked repository: "vendor/", as in git.
  std::vector<Change> changes;
  bool truncated = false;  // a limit was hit, or layers/walk.h skipped something
};

struct ChangeCount {
  uint64_t files = 0;  // as many as status() would list
  bool truncated = false;
};

using DiffStat = repo_cache::DiffStat;
using Patch = repo_cache::Patch;

// The layers to read. Uppers are newest first and are opened read-only by path: they are in the
// store, and no link in them is followed.
struct ChangeSource {
  std::string repo_dir;  // "repo_3"
  std::string base_commit;
  std::string head_commit;          // its parent, if that holds uncommitted work; else empty
  std::string moved_commit = {};    // the changes count from this one; empty: base_commit
  std::vector<std::string> uppers;  // .../layers/ly_4/tree/upper

  const std::string& compared_with() const {
    return moved_commit.empty() ? base_commit : moved_commit;
  }
};

// What a workspace from a checkout with uncommitted work is compared with: that work, or HEAD.
enum class DiffBase { work, head };

// What a diff shows.
struct DiffScope {
  std::vector<std::string> only = {};  // files and directories, relative to /workspace; empty: all
  uint64_t max_bytes = 64 << 20;
};

class Changes {
 public:
  explicit Changes(repo_cache::RepoCache& repos, const ChangeSetLimits& limits = {})
      : repos_(repos), limits_(limits) {}
  // At most 16 MiB of paths.
  ChangeList status(const ChangeSource& source, size_t limit = 100'000) const;
  // Does not store untracked paths, so it stays exact far beyond the other limits.
  ChangeCount count(const ChangeSource& source) const;
  // A patch over compared_with() for `git apply --binary`. Lists what it lacks: untracked
  // repositories, and files that tree_diff.h leaves out, also beyond max_bytes in all. Throws
  // resource_exhausted beyond 16 MiB of paths, if truncated, and if it takes too long. Without
  // empty directories.
  Patch patch(const ChangeSource& source, const DiffScope& scope = {}) const;
  // As patch, but files beyond these limits of size, time or memory count as binary.
  std::vector<DiffStat> stat(const ChangeSource& source, const DiffScope& scope = {}) const;
  // Between two states of workspaces of one repository, which may have different base commits.
  Patch patch(const ChangeSource& before, const ChangeSource& after,
              const DiffScope& scope = {}) const;
  std::vector<DiffStat> stat(const ChangeSource& before, const ChangeSource& after,
                             const DiffScope& scope = {}) const;

 private:
  repo_cache::RepoCache& repos_;
  const ChangeSetLimits limits_;
};

}  // namespace moorage::workspace
