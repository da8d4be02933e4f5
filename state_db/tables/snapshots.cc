#include "state_db/tables/snapshots.h"

#include <array>

#include "base/clock.h"
#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/workspaces.h"

namespace moorage::state_db {

namespace {

constexpr std::array<std::string_view, 8> kCauses{
    "manual", "before-exec", "on-stop", "interval", "before-restore", "fork", "promote", "export"};
constexpr std::array<std::string_view, 4> kWays{"at-rest", "restack", "copy", "subvolume"};

constexpr std::string_view kSelect =
    "SELECT id, workspace, parent, layer, next_layer, next_on, name, external_id, cause, exec, "
    "way, pause_us, durable, state, reason, created_wall_ms, created_age_ms, "
    "moved_commit, (SELECT disk_bytes FROM layers WHERE layers.id = snapshots.layer) FROM "
    "snapshots ";

template <typename Value, size_t kCount>
Value value_of(const std::array<std::string_view, kCount>& names, const std::string& name) {
  if (const auto value = from_word<Value>(names, name)) return *value;
  throw Error(Code::corrupted, "a snapshot in state.db has the unknown word " + name);
}

void read_row(Statement& query, SnapshotRow& row) {
  std::string cause;
  std::string way;
  query.read(row.id, row.workspace, row.parent, row.layer, row.next_layer, row.next_on, row.name,
             row.external_id, cause, row.exec, way, row.pause_us, row.durable, row.state,
             row.reason, row.created_wall_ms, row.created_age_ms, row.moved_commit, row.disk_bytes);
  row.cause = value_of<SnapshotCause>(kCauses, cause);
  row.way = value_of<SnapshotWay>(kWays, way);
}

std::vector<SnapshotRow> select(Store& store, std::string_view where, const auto&... values) {
  return store.prepare(std::string(kSelect) + std::string(where))
      .all<SnapshotRow>(read_row, values...);
}

// The layer of a snapshot that a workspace may continue from.
base::LayerId kept_layer(Store& store, base::SnapshotId id, const LayerRow& present) {
  const SnapshotRow row = SnapshotTable(store).get(id);
  if (row.state != SnapshotState::kept) {
    throw Error(Code::conflict, id.str() + " is " + std::string(state_name(row.state)));
  }
  const LayerRow frozen = LayerTable(store).get(row.layer);
  if (frozen.repository != present.repository || frozen.base_commit != present.base_commit) {
    throw Error(Code::conflict, id.str() + " has a different base commit");
  }
  return frozen.id;
}

}  // namespace

std::string_view cause_name(SnapshotCause cause) { return to_word(kCauses, cause); }
std::optional<SnapshotCause> cause_from_name(std::string_view name) {
  return from_word<SnapshotCause>(kCauses, name);
}
std::string_view way_name(SnapshotWay way) { return to_word(kWays, way); }

SnapshotRow SnapshotTable::begin(const NewSnapshot& wanted) {
  return store_.transaction([&] {
    if (!wanted.name.empty() && find_by_name(wanted.workspace, wanted.name)) {
      throw Error(Code::already_exists,
                  WorkspaceTable(store_).get(wanted.workspace).name + " already has a snapshot " +
                      wanted.name,
                  "choose another name, or drop that one first");
    }
    if (taking(wanted.workspace))
      throw Error(Code::conflict, "another snapshot of it is in progress", "try again");
    Statement query =
        store_.prepare("SELECT layer, stands_on, moved_commit FROM workspaces WHERE id = ?");
    query.bind(wanted.workspace);
    require_row(query.step(), wanted.workspace);
    base::LayerId writable;
    base::SnapshotId parent;
    std::string moved_commit;
    query.read(writable, parent, moved_commit);
    const LayerRow row = LayerTable(store_).get(writable);
    const bool here = in_place(wanted.way);
    base::LayerId below = here ? writable : row.parent;
    if (wanted.next_on) below = kept_layer(store_, wanted.next_on, row);
    const base::LayerId made = LayerTable(store_).create(
        {.parent = below, .repository = row.repository, .base_commit = row.base_commit});
    const base::SnapshotId id{insert(
        store_,
        "INSERT INTO snapshots (workspace, parent, layer, next_layer, next_on, name, external_id, "
        "cause, exec, way, state, created_wall_ms, created_age_ms, idempotency_key, request_hash, "
        "moved_commit)",
        wanted.workspace, parent, here ? writable : made, here ? made : base::LayerId{},
        wanted.next_on, wanted.name, wanted.external_id, cause_name(wanted.cause), wanted.exec,
        way_name(wanted.way), LifeCycle<SnapshotState>::kFirst, store_.clock().wall_ms(),
        StoreAge(store_).now_ms(), wanted.idempotency_key, wanted.request_hash, moved_commit)};
    store_.record_new<SnapshotState>(id, wanted.name);
    return get(id);
  });
}

base::SnapshotId SnapshotTable::add_past(const SnapshotRow& past) {
  return store_.transaction([&] {
    const base::SnapshotId id{insert(
        store_,
        "INSERT INTO snapshots (workspace, parent, layer, name, external_id, cause, exec, way, "
        "durable, state, created_wall_ms, created_age_ms, moved_commit)",
        past.workspace, past.parent, past.layer, past.name, past.external_id,
        cause_name(past.cause), past.exec, way_name(SnapshotWay::at_rest), true,
        LifeCycle<SnapshotState>::kFirst, past.created_wall_ms, StoreAge(store_).now_ms(),
        past.moved_commit)};
    store_.record_new<SnapshotState>(id, past.name);
    store_.move(id, SnapshotState::taking, SnapshotState::kept, "imported with an archive");
    return id;
  });
}

void SnapshotTable::set_stands_on(base::WorkspaceId workspace, base::SnapshotId snapshot) {
  write(store_, "UPDATE workspaces SET stands_on = ? WHERE id = ?", snapshot, workspace);
}

std::optional<SnapshotRow> SnapshotTable::find_made(const NewSnapshot& wanted) {
  if (!wanted.idempotency_key) return std::nullopt;
  auto made = only(select(store_, "WHERE workspace = ? AND idempotency_key = ?", wanted.workspace,
                          wanted.idempotency_key));
  if (!made) return std::nullopt;
  Statement query = store_.prepare("SELECT request_hash FROM snapshots WHERE id = ?");
  require_same_request(query.value<std::string>(made->id) == wanted.request_hash,
                       *wanted.idempotency_key);
  return made;
}

SnapshotRow SnapshotTable::become_copy(base::SnapshotId id, SnapshotWay way) {
  return store_.transaction([&] {
    const SnapshotRow row = get(id);
    change(store_, "UPDATE layers SET parent = ? WHERE id = ?",
           LayerTable(store_).get(row.layer).parent, row.next_layer);
    // Forks made with it continue from the snapshot's layer.
    change(store_, "UPDATE layers SET parent = ? WHERE parent = ?", row.next_layer, row.layer);
    change(store_,
           "UPDATE snapshots SET layer = next_layer, next_layer = NULL, way = ? WHERE id = ?",
           way_name(way), id);
    return get(id);
  });
}

void SnapshotTable::finish(base::SnapshotId id, uint64_t pause_us) {
  store_.transaction([&] {
    const SnapshotRow row = get(id);
    store_.move(id, SnapshotState::taking, SnapshotState::kept);
    LayerTable(store_).freeze(row.layer);
    // In place, this is the size measured for the writable layer; a copy has about the same.
    change(store_,
           "UPDATE layers SET disk_bytes = coalesce(disk_bytes, (SELECT writable.disk_bytes "
           "FROM layers writable JOIN workspaces ON workspaces.layer = writable.id "
           "WHERE workspaces.id = ?)) WHERE id = ?",
           row.workspace, row.layer);
    change(store_, "UPDATE workspaces SET stands_on = ?, layer = ifnull(?, layer) WHERE id = ?",
           row.next_on ? row.next_on : id, row.next_layer, row.workspace);
    if (row.next_on) {
      change(store_, "UPDATE workspaces SET moved_commit = ? WHERE id = ?",
             get(row.next_on).moved_commit, row.workspace);
    }
    change(store_,
           "UPDATE snapshots SET next_layer = NULL, next_on = NULL, pause_us = ? WHERE id = ?",
           pause_us, id);
  });
}

void SnapshotTable::undo(base::SnapshotId id, const std::string& reason) {
  store_.transaction([&] {
    store_.move(id, SnapshotState::taking, SnapshotState::dropped, reason);
    change(store_,
           "UPDATE snapshots SET layer = NULL, next_layer = NULL, next_on = NULL, "
           "idempotency_key = NULL WHERE id = ?",
           id);
  });
}

void SnapshotTable::drop(base::SnapshotId id, const std::string& reason) {
  store_.transaction([&] {
    const SnapshotRow row = get(id);
    store_.move(id, SnapshotState::kept, SnapshotState::dropped, reason);
    change(store_, "UPDATE snapshots SET layer = NULL WHERE id = ?", id);
    change(store_, "UPDATE snapshots SET parent = ? WHERE parent = ?", row.parent, id);
    change(store_, "UPDATE workspaces SET stands_on = ? WHERE stands_on = ?", row.parent, id);
  });
}

void SnapshotTable::set_exec(base::SnapshotId id, base::ExecId exec) {
  write(store_, "UPDATE snapshots SET exec = ? WHERE id = ?", exec, id);
}

void SnapshotTable::drop_all(base::WorkspaceId workspace, const std::string& reason) {
  store_.transaction([&] {
    for (const auto& row : kept(workspace)) drop(row.id, reason);
  });
}

void SnapshotTable::set_durable(base::SnapshotId id) {
  write(store_, "UPDATE snapshots SET durable = 1 WHERE id = ?", id);
}

void SnapshotTable::set_durable(base::WorkspaceId workspace) {
  write(store_,
        "UPDATE snapshots SET durable = 1 WHERE workspace = ? AND state = 'kept' AND NOT durable",
        workspace);
}

SnapshotRow SnapshotTable::get(base::SnapshotId id) { return require_row(find(id), id); }

std::optional<SnapshotRow> SnapshotTable::find(base::SnapshotId id) {
  return only(select(store_, "WHERE id = ?", id));
}

std::optional<SnapshotRow> SnapshotTable::find_by_name(base::WorkspaceId workspace,
                                                       const std::string& name) {
  return only(
      select(store_, "WHERE workspace = ? AND name = ? AND state <> 'dropped'", workspace, name));
}

std::vector<SnapshotRow> SnapshotTable::kept(base::WorkspaceId workspace) {
  return select(store_, "WHERE workspace = ? AND state = 'kept' ORDER BY id", workspace);
}

std::vector<base::WorkspaceId> SnapshotTable::family(base::WorkspaceId workspace) {
  Statement query = store_.prepare(
      "WITH RECURSIVE above (id) AS (SELECT ? UNION SELECT snapshots.workspace FROM above "
      "JOIN workspaces ON workspaces.id = above.id JOIN snapshots "
      "ON snapshots.id = workspaces.forked_from), below (id) AS (SELECT id FROM above UNION "
      "SELECT workspaces.id FROM below JOIN snapshots ON snapshots.workspace = below.id "
      "JOIN workspaces ON workspaces.forked_from = snapshots.id) SELECT id FROM below ORDER BY id");
  return query.column<base::WorkspaceId>(workspace);
}

std::optional<SnapshotRow> SnapshotTable::newest(base::WorkspaceId workspace) {
  return only(
      select(store_, "WHERE workspace = ? AND state = 'kept' ORDER BY id DESC LIMIT 1", workspace));
}

std::vector<base::WorkspaceId> SnapshotTable::with_many(size_t more_than) {
  Statement query = store_.prepare(
      "SELECT workspace FROM snapshots WHERE state = 'kept' AND name = '' AND cause <> 'manual' "
      "GROUP BY workspace HAVING count(*) > ? ORDER BY workspace");
  return query.column<base::WorkspaceId>(static_cast<int64_t>(more_than));
}

std::vector<SnapshotRow> SnapshotTable::taking() {
  return select(store_, "WHERE state = 'taking' ORDER BY id");
}

std::optional<SnapshotRow> SnapshotTable::taking(base::WorkspaceId workspace) {
  return only(select(store_, "WHERE workspace = ? AND state = 'taking'", workspace));
}

std::vector<SnapshotRow> SnapshotTable::not_durable() {
  return select(store_, "WHERE state = 'kept' AND NOT durable ORDER BY id");
}

}  // namespace moorage::state_db
