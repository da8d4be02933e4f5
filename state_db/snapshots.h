// Snapshots: states of a workspace that one can go back to, each a frozen layer. One is taken in
// two commits. `begin` makes the rows of the layers that are needed; between the two the layer is
// put in its place; `finish` says what stands on what. In place (at_rest, restack) the writable
// layer itself becomes the snapshot's, and a new one follows: over it, or over another snapshot,
// which is what restore and promote are. As a copy (copy, subvolume)
// the snapshot's layer is a new one over the same parent, and the writable one stays.
//
// To finish one in place that was cut is always right unless a sandbox still writes to the layer:
// then it is undone. A layer that no row has any more is in Layers::unused().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"

namespace moorage::state_db {

class Store;

// The names are on the wire.
enum class SnapshotCause : uint8_t {
  manual,
  before_exec,
  on_stop,
  interval,
  before_restore,
  fork,
  promote,
  export_
};
enum class SnapshotWay : uint8_t { at_rest, restack, copy, subvolume };
std::string_view cause_name(SnapshotCause cause);
std::optional<SnapshotCause> cause_from_name(std::string_view name);
std::string_view way_name(SnapshotWay way);
// Taken by itself, so it also goes by itself, unless it has a name.
constexpr bool is_automatic(SnapshotCause cause) { return cause != SnapshotCause::manual; }
constexpr bool in_place(SnapshotWay way) {
  return way == SnapshotWay::at_rest || way == SnapshotWay::restack;
}

struct SnapshotRow {
  base::SnapshotId id{};
  base::WorkspaceId workspace{};
  base::SnapshotId parent{};   // what the workspace stood on; 0: its base commit
  base::LayerId layer{};       // 0 once dropped
  base::LayerId next_layer{};  // while it is taken in place
  base::SnapshotId next_on{};  // the same: what next_layer stands on; 0: this one
  std::string name{};          // may be empty
  std::string external_id{};
  SnapshotCause cause = SnapshotCause::manual;
  base::ExecId exec{};  // that it was taken before; 0: none
  SnapshotWay way = SnapshotWay::at_rest;
  uint64_t pause_us = 0;  // how long the sandbox was frozen
  bool durable = false;   // its files are on disk, too
  SnapshotState state = SnapshotState::taking;
  std::string reason{};
  int64_t created_wall_ms = 0;
  int64_t created_age_ms = 0;  // the store's age (store_age.h)
  std::optional<uint64_t> disk_bytes{};  // of its layer (layer_disk.h); unset: not measured
};

struct NewSnapshot {
  base::WorkspaceId workspace{};
  std::string name{};
  std::string external_id{};
  SnapshotCause cause = SnapshotCause::manual;
  base::ExecId exec{};
  SnapshotWay way = SnapshotWay::at_rest;
  base::SnapshotId next_on{};  // in place: the workspace goes on from that one; 0: from this one
  std::optional<std::string> idempotency_key{};
  std::string request_hash{};
};

class Snapshots {
 public:
  explicit Snapshots(Store& store) : store_(store) {}

  // already_exists: the name is taken. conflict: another one of it is being taken, or next_on is
  // not kept.
  SnapshotRow begin(const NewSnapshot& wanted);
  // One that was taken elsewhere, of a workspace that is being imported: kept at once. Of the row
  // count workspace, parent, layer, name, external_id, cause, exec and created_wall_ms.
  base::SnapshotId add_past(const SnapshotRow& past);
  void set_stands_on(base::WorkspaceId workspace, base::SnapshotId snapshot);
  // What (workspace, idempotency_key) took; already_exists: for another request_hash.
  std::optional<SnapshotRow> find_made(const NewSnapshot& wanted);
  // A restack that met somebody who holds the mounts: taking, as a copy in one of the two ways.
  SnapshotRow become_copy(base::SnapshotId id, SnapshotWay way);
  void finish(base::SnapshotId id, uint64_t pause_us);        // taking -> kept
  void undo(base::SnapshotId id, const std::string& reason);  // taking -> dropped; key free again
  // kept -> dropped: it lets go of its layer, and what stood on it stands on its parent.
  void drop(base::SnapshotId id, const std::string& reason);
  void set_exec(base::SnapshotId id, base::ExecId exec);
  void drop_all(base::WorkspaceId workspace, const std::string& reason);
  void set_durable(base::SnapshotId id);
  void set_durable(base::WorkspaceId workspace);  // all kept ones of it

  SnapshotRow get(base::SnapshotId id);  // not_found
  std::optional<SnapshotRow> find(base::SnapshotId id);
  std::optional<SnapshotRow> find_by_name(base::WorkspaceId workspace, const std::string& name);
  std::vector<SnapshotRow> kept(base::WorkspaceId workspace);      // oldest first
  std::optional<SnapshotRow> newest(base::WorkspaceId workspace);  // of the kept ones
  // Workspaces with more than so many kept ones that nobody named or asked for.
  std::vector<base::WorkspaceId> with_many(size_t more_than);
  std::vector<SnapshotRow> taking();
  std::optional<SnapshotRow> taking(base::WorkspaceId workspace);
  // The workspace, what it was forked from and so on, and all forks of those; by id.
  std::vector<base::WorkspaceId> family(base::WorkspaceId workspace);
  std::vector<SnapshotRow> not_durable();  // kept ones

 private:
  Store& store_;
};

}  // namespace moorage::state_db
