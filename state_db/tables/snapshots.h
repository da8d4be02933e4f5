// Snapshots: earlier states of a workspace, each a frozen layer. Taking one needs two commits.
// `begin` creates the rows of the layers; then the layer is put in its place; `finish` records the
// new chain. In place (at_rest, restack) the writable layer itself becomes the snapshot's, and a
// new one follows: over it, or, for restore and promote, over another snapshot. As a copy (copy,
// subvolume) the snapshot's layer is a new one over the same parent, and the writable one stays.
//
// After a crash, finishing one in place is always right unless a sandbox still writes to the
// layer: then it is undone. Layers::unused() lists layers without a row that uses them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"

namespace moorage::state_db {

class Store;

// The names are part of the API.
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
// Taken automatically, so also removed automatically, unless it has a name.
constexpr bool is_automatic(SnapshotCause cause) { return cause != SnapshotCause::manual; }
constexpr bool in_place(SnapshotWay way) {
  return way == SnapshotWay::at_rest || way == SnapshotWay::restack;
}

struct SnapshotRow {
  base::SnapshotId id{};
  base::WorkspaceId workspace{};
  base::SnapshotId parent{};   // the workspace's snapshot at that time; 0: its base commit
  base::LayerId layer{};       // 0 once dropped
  base::LayerId next_layer{};  // while it is taken in place
  base::SnapshotId next_on{};  // parent snapshot of next_layer; 0: this one
  std::string name{};          // may be empty
  std::string external_id{};
  SnapshotCause cause = SnapshotCause::manual;
  base::ExecId exec{};  // the command that followed; 0: none
  SnapshotWay way = SnapshotWay::at_rest;
  uint64_t pause_us = 0;  // how long the sandbox was frozen
  bool durable = false;   // its files are on disk, too
  SnapshotState state = SnapshotState::taking;
  std::string reason{};
  int64_t created_wall_ms = 0;
  int64_t created_age_ms = 0;            // the store's age (store_age.h)
  std::string moved_commit{};            // the workspace's at that time
  std::optional<uint64_t> disk_bytes{};  // of its layer (layer_disk.h); unset: not measured
};

struct NewSnapshot {
  base::WorkspaceId workspace{};
  std::string name{};
  std::string external_id{};
  SnapshotCause cause = SnapshotCause::manual;
  base::ExecId exec{};
  SnapshotWay way = SnapshotWay::at_rest;
  base::SnapshotId next_on{};  // in place: the workspace continues from that one; 0: from this one
  std::optional<std::string> idempotency_key{};
  std::string request_hash{};
};

class SnapshotTable {
 public:
  explicit SnapshotTable(Store& store) : store_(store) {}

  // already_exists: the name is taken. conflict: another snapshot of it is being taken, or next_on
  // is not kept.
  SnapshotRow begin(const NewSnapshot& wanted);
  // Adds a snapshot from another store to a workspace that is being imported: kept at once. Uses
  // workspace, parent, layer, name, external_id, cause, exec and created_wall_ms of the row.
  base::SnapshotId add_past(const SnapshotRow& past);
  void set_stands_on(base::WorkspaceId workspace, base::SnapshotId snapshot);
  // The snapshot of (workspace, idempotency_key); already_exists: the request_hash differs.
  std::optional<SnapshotRow> find_made(const NewSnapshot& wanted);
  // For a restack that finds the mounts in use: continue as a copy of this kind.
  SnapshotRow become_copy(base::SnapshotId id, SnapshotWay way);
  void finish(base::SnapshotId id, uint64_t pause_us);        // taking -> kept
  void undo(base::SnapshotId id, const std::string& reason);  // taking -> dropped; key free again
  // kept -> dropped: releases its layer; snapshots over it move to its parent.
  void drop(base::SnapshotId id, const std::string& reason);
  void set_exec(base::SnapshotId id, base::ExecId exec);
  void drop_all(base::WorkspaceId workspace, const std::string& reason);
  void set_durable(base::SnapshotId id);
  void set_durable(base::WorkspaceId workspace);  // of all kept snapshots

  SnapshotRow get(base::SnapshotId id);  // not_found
  std::optional<SnapshotRow> find(base::SnapshotId id);
  std::optional<SnapshotRow> find_by_name(base::WorkspaceId workspace, const std::string& name);
  std::vector<SnapshotRow> kept(base::WorkspaceId workspace);      // oldest first
  std::optional<SnapshotRow> newest(base::WorkspaceId workspace);  // of the kept ones
  // Workspaces with more than so many kept snapshots that are unnamed and automatic.
  std::vector<base::WorkspaceId> with_many(size_t more_than);
  std::vector<SnapshotRow> taking();
  std::optional<SnapshotRow> taking(base::WorkspaceId workspace);
  // The workspace, its origins, and all forks of those; by id.
  std::vector<base::WorkspaceId> family(base::WorkspaceId workspace);
  std::vector<SnapshotRow> not_durable();  // kept ones

 private:
  Store& store_;
};

}  // namespace moorage::state_db
