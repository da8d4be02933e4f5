// A row of the workspaces table, and its queries and inputs (workspaces.h): plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/ids.h"
#include "state_db/lifecycle.h"
#include "state_db/tables/viewer.h"
#include "state_db/tables/workspace_policy.h"

namespace moorage::state_db {

// The origin of an imported fork, if it is not in this store.
struct ForkOrigin {
  std::string store{};  // its id
  base::WorkspaceId workspace{};
  base::SnapshotId snapshot{};
  std::string name{};  // of the workspace, when the archive was made
};

struct WorkspaceRow {
  base::WorkspaceId id{};
  std::string name{};
  uint32_t owner_uid = 0;
  std::optional<uint32_t> team_gid{};  // its members may use it too; unset: private
  base::RepoId repository{};
  std::string base_ref{};          // "refs/heads/main", "refs/tags/v1"; empty: a commit alone
  std::string base_commit{};       // of its base tree: 40 hex digits; at creation that of base_ref
  std::string head_commit{};       // where its branch began; empty: base_commit (see began_at)
  std::string raw_commit{};        // its files as they were on disk; empty: as base_commit's tree
  std::string moved_commit{};      // its changes count from this one; empty: base_commit
  std::string branch{};            // the agent's branch
  base::LayerId layer{};           // the writable one; 0 after the purge
  base::SnapshotId stands_on{};    // the last one taken of it, or restored; 0: its base commit
  base::SnapshotId forked_from{};  // 0: not a fork, or an imported one
  std::optional<ForkOrigin> fork_of{};
  uint32_t attempt = 0;   // number among forks made together, from 1; 0: made alone
  uint32_t attempts = 0;  // how many were made together
  std::string backend{};
  std::string image{};
  std::string runtime{};  // its name in the backend's engine; empty: the default
  WorkspacePolicy policy{};
  int64_t used_execs = 0;    // commands so far, without hooks
  int64_t used_exec_ms = 0;  // wall time of finished ones
  WorkspaceState state = WorkspaceState::creating;
  std::string reason{};  // of the last move: why it failed, who deleted it
  bool disposable = false;
  std::optional<uint64_t> changes_files{};  // as of changes_wall_ms; unset: never counted
  int64_t changes_wall_ms = 0;
  std::optional<uint64_t> unpushed{};  // commits
  std::optional<uint64_t> disk_bytes{};
  std::optional<uint64_t> disk_files{};
  int64_t rest_age_ms = 0;  // the store's age at its creation or last stop
  int64_t created_wall_ms = 0;
  std::optional<int64_t> deleted_wall_ms{};  // tombstone; undelete clears it
  std::optional<int64_t> deleted_age_ms{};   // the store's age then (store_age.h)
  std::optional<int64_t> purge_wall_ms{};    // file removal has begun: no undelete
  std::optional<int64_t> purged_wall_ms{};   // files removed; the row stays as history
  std::optional<std::string> idempotency_key{};
  std::map<std::string, std::string> labels{};
};

// The first commit of its branch. The base commit of a workspace from a local checkout is a child
// of it with what was not committed there.
inline const std::string& began_at(const WorkspaceRow& row) {
  return row.head_commit.empty() ? row.base_commit : row.head_commit;
}

// The commit with its first files, byte for byte.
inline const std::string& on_disk(const WorkspaceRow& row) {
  return row.raw_commit.empty() ? row.base_commit : row.raw_commit;
}

// Its changes are counted from this commit: a newer one of upstream, after the agent rebased on it
// or merged it, else its base commit.
inline const std::string& compared_with(const WorkspaceRow& row) {
  return row.moved_commit.empty() ? row.base_commit : row.moved_commit;
}

struct NewWorkspace {
  std::string name{};
  uint32_t owner_uid = 0;
  std::optional<uint32_t> team_gid{};
  base::RepoId repository{};
  std::string base_ref{};
  std::string base_commit{};
  std::string head_commit{};   // as in WorkspaceRow
  std::string raw_commit{};    // as in WorkspaceRow
  std::string moved_commit{};  // the same; of forks that of their snapshot
  std::string branch{};
  base::SnapshotId forked_from{};  // 0: directly on the base tree
  base::LayerId stands_on{};       // or on this imported frozen layer
  std::optional<ForkOrigin> fork_of{};
  uint32_t attempt = 0;
  uint32_t attempts = 0;
  std::string backend{};
  std::string image{};
  std::string runtime{};  // its name in the backend's engine; empty: the default
  WorkspacePolicy policy{};
  bool disposable = false;
  std::map<std::string, std::string> labels{};
  std::optional<std::string> idempotency_key{};  // one workspace for (owner, key)
  std::string request_hash{};                    // of the request with that key
};

// Where its sandboxes run.
struct Place {
  std::string backend{};
  std::string image{};
  std::string runtime{};
  friend bool operator==(const Place&, const Place&) = default;
};

// Measurements; only fields that are set are written, in one commit.
struct WorkspaceFacts {
  std::optional<uint64_t> changes_files{};  // sets changes_wall_ms to now
  std::optional<uint64_t> unpushed{};
  std::optional<uint64_t> disk_bytes{};
  std::optional<uint64_t> disk_files{};
  std::optional<int64_t> rest_age_ms{};
  std::optional<std::string> branch{};
  std::optional<std::string> moved_commit{};
};

struct WorkspaceQuery {
  std::optional<uint32_t> owner_uid{};
  std::optional<Viewer> seen_by{};  // workspaces of this user and of the user's teams
  std::optional<WorkspaceState> state{};
  base::RepoId repository{};  // 0: any
  std::string name{};         // empty: any
  bool only_disposable = false;
  bool with_deleted = false;  // include tombstones; state, if set, overrides this and the next
  bool with_failed = true;
  // Page size; the page starts after `after` (which need not exist). 0: all.
  size_t limit = 0;
  base::WorkspaceId after{};
};

}  // namespace moorage::state_db
