// Workspaces: the durable things. Among the live ones (all but deleted and failed) a name is unique
// for its owner. `create` writes workspace, layer, labels and event in one commit; `set_ready` is
// the second.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"
#include "state_db/viewer.h"
#include "state_db/workspace_policy.h"

namespace moorage::state_db {

class Store;

struct WorkspaceRow {
  base::WorkspaceId id{};
  std::string name{};
  uint32_t owner_uid = 0;
  std::optional<uint32_t> team_gid{};  // whose members may use it, too; unset: private
  base::RepoId repository{};
  std::string base_ref{};     // what was asked for: "main", "v2.1", "" = the default branch
  std::string base_commit{};  // what it was then: 40 hex digits
  std::string branch{};       // the agent's branch
  base::LayerId layer{};      // the writable one; 0 after the purge
  std::string backend{};
  std::string image{};
  WorkspacePolicy policy{};
  int64_t used_execs = 0;    // commands so far, without hooks
  int64_t used_exec_ms = 0;  // wall time of those that ended
  WorkspaceState state = WorkspaceState::creating;
  std::string reason{};  // of the last move: why it failed, who deleted it
  bool disposable = false;
  std::optional<uint64_t> changes_files{};  // as of changes_wall_ms; unset: never counted
  int64_t changes_wall_ms = 0;
  std::optional<uint64_t> unpushed{};  // commits
  std::optional<uint64_t> disk_bytes{};
  std::optional<uint64_t> disk_files{};
  int64_t rest_age_ms = 0;  // the store's age when it was made or last stopped
  int64_t created_wall_ms = 0;
  std::optional<int64_t> deleted_wall_ms{};  // tombstone; undelete clears it
  std::optional<int64_t> deleted_age_ms{};   // the store's age then (store_age.h)
  std::optional<int64_t> purge_wall_ms{};    // its files are being removed: no undelete
  std::optional<int64_t> purged_wall_ms{};   // they are gone; the row stays as history
  std::optional<std::string> idempotency_key{};
  std::map<std::string, std::string> labels{};
};

struct NewWorkspace {
  std::string name{};
  uint32_t owner_uid = 0;
  std::optional<uint32_t> team_gid{};
  base::RepoId repository{};
  std::string base_ref{};
  std::string base_commit{};
  std::string branch{};
  base::LayerId parent_layer{};  // 0: the new layer is directly on the base tree
  std::string backend{};
  std::string image{};
  WorkspacePolicy policy{};
  bool disposable = false;
  std::map<std::string, std::string> labels{};
  std::optional<std::string> idempotency_key{};  // one workspace for (owner, key)
  std::string request_hash{};                    // of the request with that key
};

// What was measured; only what is set is written, in one commit.
struct WorkspaceFacts {
  std::optional<uint64_t> changes_files{};  // sets changes_wall_ms to now
  std::optional<uint64_t> unpushed{};
  std::optional<uint64_t> disk_bytes{};
  std::optional<uint64_t> disk_files{};
  std::optional<int64_t> rest_age_ms{};
  std::optional<std::string> branch{};
};

struct WorkspaceQuery {
  std::optional<uint32_t> owner_uid{};
  std::optional<Viewer> seen_by{};  // what this one owns, and what is his teams'
  std::optional<WorkspaceState> state{};
  base::RepoId repository{};  // 0: any
  bool with_deleted = false;  // tombstones too; ignored if state is set
};

class Workspaces {
 public:
  explicit Workspaces(Store& store) : store_(store) {}

  struct Created {
    base::WorkspaceId id{};
    base::LayerId layer{};
    bool existed = false;  // the key had made it before: nothing was written
  };
  // In `creating`. already_exists: the name is taken, or the key was used for another request.
  Created create(const NewWorkspace& workspace);
  // What (owner_uid, idempotency_key) made; already_exists: for another request_hash.
  std::optional<Created> find_made(const NewWorkspace& wanted);
  void set_ready(base::WorkspaceId id, const WorkspaceFacts& facts = {});  // creating -> ready

  WorkspaceRow get(base::WorkspaceId id);  // not_found
  std::optional<WorkspaceRow> find(base::WorkspaceId id);
  std::optional<WorkspaceRow> find_live(uint32_t owner_uid, const std::string& name);
  std::vector<WorkspaceRow> list(const WorkspaceQuery& query = {});  // by id; never purged ones
  // Live ones with this name, of any owner, or of those that one may see.
  std::vector<WorkspaceRow> find_by_name(const std::string& name,
                                         const std::optional<Viewer>& seen_by = {});
  uint64_t count_live();
  // Those not purged, by state.
  using Counts = std::array<uint64_t, LifeCycle<WorkspaceState>::kNames.size()>;
  Counts count_by_state();

  struct Disk {  // of the rows that are not purged, as far as they were measured
    uint64_t bytes = 0;
    uint64_t files = 0;
  };
  Disk disk_of_owner(uint32_t owner_uid);
  Disk disk_of_repository(base::RepoId repository);
  void set_facts(base::WorkspaceId id, const WorkspaceFacts& facts);
  void set_label(base::WorkspaceId id, const std::string& key, const std::string& value);
  void remove_label(base::WorkspaceId id, const std::string& key);
  void set_layer(base::WorkspaceId id, base::LayerId layer);
  // With an event that tells the difference and `by`, in one commit; nothing, if there is none.
  // conflict: it is not `from` any more.
  struct PolicyChange {
    const WorkspacePolicy& from;
    const WorkspacePolicy& to;
    const std::string& by;
  };
  void set_policy(base::WorkspaceId id, const PolicyChange& change);
  void set_team(base::WorkspaceId id, std::optional<uint32_t> gid);  // with an event, if it changes

  void finish_delete(base::WorkspaceId id);  // deleting -> deleted, with the time
  // deleted -> ready, under another name if one is given. conflict: being purged, or not deleted.
  // already_exists: the name is taken.
  void undelete(base::WorkspaceId id, const std::string& new_name = {});
  void begin_purge(base::WorkspaceId id);   // only a deleted one; repeats are fine
  void finish_purge(base::WorkspaceId id);  // lets go of its layer (Layers::remove it afterwards)
  struct UndoWindows {
    int64_t usual_ms = 0;
    int64_t disposable_ms = 0;
  };
  // Those whose purge has begun, and those that were deleted longer ago than their window, by the
  // store's age.
  std::vector<WorkspaceRow> purgeable(const UndoWindows& windows);

 private:
  Store& store_;
};

}  // namespace moorage::state_db
