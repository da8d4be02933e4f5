// Workspaces: the durable objects. Among an owner's live ones (all but deleted and failed) names
// are unique. `create` writes workspace, layer, labels and event in one commit; `set_ready` is the
// second.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"
#include "state_db/tables/viewer.h"
#include "state_db/tables/workspace_row.h"

namespace moorage::state_db {

class Store;

class WorkspaceTable {
 public:
  explicit WorkspaceTable(Store& store) : store_(store) {}

  struct Created {
    base::WorkspaceId id{};
    base::LayerId layer{};
    bool existed = false;  // an earlier request with this key created it: nothing was written
  };
  // In `creating`. already_exists: the name is taken, or the key belongs to another request.
  Created create(const NewWorkspace& workspace);
  // The workspace of (owner_uid, idempotency_key); already_exists: the request_hash differs.
  std::optional<Created> find_made(const NewWorkspace& wanted);
  void set_ready(base::WorkspaceId id, const WorkspaceFacts& facts = {});  // creating -> ready
  // creating -> failed. The key becomes reusable.
  void fail(base::WorkspaceId id, const std::string& reason);

  WorkspaceRow get(base::WorkspaceId id);  // not_found
  std::optional<WorkspaceRow> find(base::WorkspaceId id);
  std::optional<WorkspaceRow> find_live(uint32_t owner_uid, const std::string& name);
  std::vector<WorkspaceRow> list(const WorkspaceQuery& query = {});  // by id; never purged ones
  uint64_t count(base::RepoId repository);                           // including deleted ones
  // Of these ids, those that never existed.
  std::vector<base::WorkspaceId> unknown(const std::vector<base::WorkspaceId>& ids);
  // `wish`, or with a number appended if the owner has a live workspace of that name.
  std::string free_name(uint32_t owner_uid, const std::string& wish);
  // Live ones with this name, of any owner, or only those visible to `seen_by`.
  std::vector<WorkspaceRow> find_by_name(const std::string& name,
                                         const std::optional<Viewer>& seen_by = {});
  // Ready or archived ones, by id.
  std::vector<WorkspaceRow> at_rest_after(base::WorkspaceId after, size_t limit);
  uint64_t count_live();
  base::WorkspaceId last_made();  // highest id with no earlier one being created; 0: none
  // Those not purged, by state.
  using Counts = std::array<uint64_t, LifeCycle<WorkspaceState>::kNames.size()>;
  Counts count_by_state();

  struct Disk {  // of the rows that are not purged, as far as measured
    uint64_t bytes = 0;
    uint64_t files = 0;
  };
  struct DiskOf {  // unset: of all
    std::optional<uint32_t> owner_uid{};
    base::RepoId repository{};
    std::optional<Viewer> seen_by{};
  };
  Disk disk(const DiskOf& of);
  void set_facts(base::WorkspaceId id, const WorkspaceFacts& facts);
  void set_label(base::WorkspaceId id, const std::string& key, const std::string& value);
  using LabelChanges = std::map<std::string, std::optional<std::string>>;  // unset: removed
  // Both with an event that states the change and `by`; nothing is written without a difference.
  // already_exists: another live workspace of its owner has the name.
  void rename(base::WorkspaceId id, const std::string& name, const std::string& by);
  void change_labels(base::WorkspaceId id, const LabelChanges& changes, const std::string& by);
  void set_layer(base::WorkspaceId id, base::LayerId layer);
  // With an event that states the difference and `by`, in one commit; does nothing without a
  // difference. conflict: the current policy is not `from`.
  struct PolicyChange {
    const WorkspacePolicy& from;
    const WorkspacePolicy& to;
    const std::string& by;
  };
  void set_policy(base::WorkspaceId id, const PolicyChange& change);
  // With an event that names the old and the new place, and `by`.
  void set_place(base::WorkspaceId id, const Place& place, const std::string& by);
  // With an event `text` on a change.
  void set_team(base::WorkspaceId id, std::optional<uint32_t> gid, const std::string& text);

  void finish_delete(base::WorkspaceId id);  // deleting -> deleted, with the time
  // deleted -> ready, or archived if it was, optionally under another name. conflict: being purged,
  // or not deleted. already_exists: the name is taken.
  void undelete(base::WorkspaceId id, const std::string& new_name = {});
  void begin_purge(base::WorkspaceId id);   // only a deleted one; repeats are fine
  void finish_purge(base::WorkspaceId id);  // releases its layer (call Layers::remove afterwards)
  struct UndoWindows {
    int64_t usual_ms = 0;
    int64_t disposable_ms = 0;
  };
  // Workspaces whose purge has begun, or whose undo window has passed, by the store's age.
  std::vector<WorkspaceRow> purgeable(const UndoWindows& windows);

 private:
  Store& store_;
};

}  // namespace moorage::state_db
