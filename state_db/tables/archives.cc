#include "state_db/tables/archives.h"

#include <charconv>

#include "base/clock.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/tables/idempotency.h"

namespace moorage::state_db {
namespace {

constexpr std::string_view kSelect =
    "SELECT id, workspace, whole, bytes, sha256, wall_ms, seal FROM archives ";

void read_row(Statement& query, ArchiveRow& row) {
  query.read(row.number, row.workspace, row.whole, row.bytes, row.sha256, row.wall_ms, row.seal);
}

std::string prefix_of(const std::string& store_id) { return "moorage-" + store_id + "-"; }

}  // namespace

std::string archive_file_name(const std::string& store_id, base::WorkspaceId workspace,
                              int64_t number) {
  return prefix_of(store_id) + workspace.str() + "." + std::to_string(number) + ".tar.zst";
}

std::string move_under_way(base::WorkspaceId workspace) { return workspace.str() + " moves"; }

std::optional<int64_t> archive_number(const std::string& file_name, const std::string& store_id,
                                      base::WorkspaceId workspace) {
  const std::string prefix = prefix_of(store_id) + workspace.str() + ".";
  if (!file_name.starts_with(prefix)) return std::nullopt;
  int64_t number = 0;
  std::from_chars(file_name.data() + prefix.size(), file_name.data() + file_name.size(), number);
  if (file_name != archive_file_name(store_id, workspace, number)) return std::nullopt;
  return number;
}

ArchiveRow ArchiveTable::begin(base::WorkspaceId id) {
  return store_.transaction([&] {
    store_.move(id, WorkspaceState::ready, WorkspaceState::archiving);
    insert(store_, "INSERT INTO archives (workspace)", id);
    return find(id).value();
  });
}

void ArchiveTable::finish(base::WorkspaceId id, const ArchiveFile& file,
                          const std::vector<base::LayerId>& layers) {
  store_.transaction([&] {
    change(store_,
           "UPDATE archives SET whole = 1, bytes = ?, sha256 = ?, wall_ms = ?, seal = ? "
           "WHERE workspace = ?",
           file.bytes, file.sha256, store_.clock().wall_ms(), file.seal, id);
    change(store_,
           "INSERT INTO archive_layers (archive, layer) SELECT archives.id, value "
           "FROM archives, json_each(?) WHERE workspace = ?",
           layers, id);
    store_.move(id, WorkspaceState::archiving, WorkspaceState::archived);
  });
}

void ArchiveTable::undo(base::WorkspaceId id, const std::string& reason) {
  store_.transaction([&] {
    forget(id);
    store_.move(id, WorkspaceState::archiving, WorkspaceState::ready, reason);
    IdempotencyKeys(store_).forget_begun(move_under_way(id));
  });
}

void ArchiveTable::begin_restore(base::WorkspaceId id) {
  store_.move(id, WorkspaceState::archived, WorkspaceState::unarchiving);
}

void ArchiveTable::finish_restore(base::WorkspaceId id) {
  store_.transaction([&] {
    change(store_, "UPDATE archives SET whole = 0 WHERE workspace = ?", id);
    store_.move(id, WorkspaceState::unarchiving, WorkspaceState::ready);
  });
}

void ArchiveTable::undo_restore(base::WorkspaceId id, const std::string& reason) {
  store_.transaction([&] {
    store_.move(id, WorkspaceState::unarchiving, WorkspaceState::archived, reason);
    IdempotencyKeys(store_).forget_begun(move_under_way(id));
  });
}

void ArchiveTable::forget(base::WorkspaceId id) {
  store_.transaction([&] {
    change(
        store_,
        "DELETE FROM archive_layers WHERE archive IN (SELECT id FROM archives WHERE workspace = ?)",
        id);
    change(store_, "DELETE FROM archives WHERE workspace = ?", id);
  });
}

std::optional<ArchiveRow> ArchiveTable::find(base::WorkspaceId id) {
  Statement query = store_.prepare(std::string(kSelect) + "WHERE workspace = ?");
  return query.first<ArchiveRow>(read_row, id);
}

std::vector<ArchiveRow> ArchiveTable::list() {
  return store_.prepare(std::string(kSelect) + "ORDER BY id").all<ArchiveRow>(read_row);
}

std::vector<ArchiveTable::Place> ArchiveTable::places() {
  Statement query = store_.prepare(
      "SELECT a.workspace, a.whole, w.state, w.layer FROM archives a "
      "JOIN workspaces w ON w.id = a.workspace ORDER BY a.id");
  return query.all<Place>([](Statement& row, Place& place) {
    row.read(place.workspace, place.whole, place.state, place.layer);
  });
}

std::string ArchiveTable::name_prefix() const { return prefix_of(store_.store_id()); }

std::string ArchiveTable::file_name(const ArchiveRow& row) const {
  return archive_file_name(store_.store_id(), row.workspace, row.number);
}

}  // namespace moorage::state_db
