// What a workspace changed, told from its upper directories alone: cost follows the change, not the
// repository. Whiteouts, opaque directories and redirects are understood; copied-up but unchanged
// files are no change; ignored untracked files are left out, as git does (.gitignore files are read
// as data). The agent's .git directory is never read here, so "untracked" means: not in the base
// commit. A tree that changes meanwhile is walked again, three times at most; then the last look
// counts, and a patch throws conflict if a file that it needs is gone. Memory and time have limits
// (change_set.h): to compare may take as long as the walk, a patch as long again. The agent decides
// how long it takes, so it runs behind what others wait for (base/background.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "workspace/change_set.h"

namespace moorage::repo_cache {
class RepoCache;
}

namespace moorage::workspace {

enum class ChangeKind { added, modified, deleted, mode, type, untracked };
const char* change_name(ChangeKind kind);

struct Change {
  std::string path;  // raw bytes, relative to /workspace
  ChangeKind kind = ChangeKind::modified;
};

struct ChangeList {
  // Sorted by path. Files; directories only where an untracked repository lies in one: "vendor/",
  // as git says.
  std::vector<Change> changes;
  bool truncated = false;  // beyond a limit, or what layer_walk.h does not look at
};

struct ChangeCount {
  uint64_t files = 0;  // as many as status() would list
  bool truncated = false;
};

struct DiffStat {
  std::string path;
  uint64_t added = 0;
  uint64_t removed = 0;
  bool binary = false;
  ChangeKind kind = ChangeKind::modified;
  uint64_t bytes_before = 0;  // as git keeps it; 0: it was not there
  uint64_t bytes_after = 0;
};

// Where to look. Uppers are newest first and are opened read-only by path: they lie in the store,
// and no link in them is followed.
struct ChangeSource {
  std::string repo_dir;  // "repo_3"
  std::string base_commit;
  std::vector<std::string> uppers;  // .../layers/ly_4/tree/upper
};

inline constexpr uint64_t kMaxChangedBytes = 64 << 20;

class Changes {
 public:
  explicit Changes(repo_cache::RepoCache& repos, const ChangeSetLimits& limits = {})
      : repos_(repos), limits_(limits) {}
  // At most 16 MiB of paths.
  ChangeList status(const ChangeSource& source, size_t limit = 100'000) const;
  // Without remembering untracked paths, so that a count far beyond the other limits is whole.
  ChangeCount count(const ChangeSource& source) const;
  // A patch that `git apply --binary` takes, over base_commit. Throws resource_exhausted for a file
  // or a patch of more than max_bytes, beyond 1 GiB of contents, 16 MiB of paths, and for a change
  // that is not seen whole. Untracked repositories and empty directories are not in it.
  std::string patch(const ChangeSource& source, uint64_t max_bytes = kMaxChangedBytes) const;
  // As patch, but what is beyond these, comes too late, or has no room in memory counts as binary.
  std::vector<DiffStat> stat(const ChangeSource& source,
                             uint64_t max_bytes = kMaxChangedBytes) const;
  // Between two states of workspaces of one repository, also on different commits of it.
  std::string patch(const ChangeSource& before, const ChangeSource& after,
                    uint64_t max_bytes = kMaxChangedBytes) const;
  std::vector<DiffStat> stat(const ChangeSource& before, const ChangeSource& after,
                             uint64_t max_bytes = kMaxChangedBytes) const;

 private:
  repo_cache::RepoCache& repos_;
  const ChangeSetLimits limits_;
};

}  // namespace moorage::workspace
