// What the verbs of RepoCache return, and the limits of an import.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace moorage::repo_cache {

using Duration = std::chrono::milliseconds;

struct RefreshResult {
  bool cloned = false;   // there was no mirror before
  bool fetched = false;  // objects or refs moved; false: upstream is unchanged
  bool rebuilt = false;  // the mirror was broken and has been rebuilt
  bool stale = false;    // upstream was unreachable: the mirror dates from checked_wall_ms
  std::string stale_reason = {};
  int64_t checked_wall_ms = 0;      // when upstream was last compared successfully
  std::string default_branch = {};  // "main"; empty: upstream has none
  std::string tip = {};             // commit of the default branch
  uint64_t bytes = 0;               // of the mirror on disk
};

struct ResolvedRef {
  std::string commit;  // 40 hex digits
  std::string ref;     // upstream's name: "refs/heads/main"; empty: given as a commit
  bool is_branch = false;
};

// Between a commit and an upstream ref, in commits.
struct Distance {
  int behind = 0;  // only the ref has them
  int lost = 0;    // only the commit has them: upstream rewrote its history
};

struct ImportResult {
  std::string head_commit;
  std::string work_commit;  // a child of head: uncommitted work, as `git add` stores it; or head
  std::string raw_commit;   // a child of work: the same files, byte for byte; or work
};

struct ImportLimits {
  uint64_t max_bytes = 8ull << 30;  // of the pack when indexed
  Duration deadline{600'000};
};

// References for a workspace's .git: upstream's, or those of the imported checkout.
struct WorkspaceRefs {
  std::string packed_refs;     // peeled, sorted
  std::string default_branch;  // for refs/remotes/origin/HEAD; may be empty
};

}  // namespace moorage::repo_cache
