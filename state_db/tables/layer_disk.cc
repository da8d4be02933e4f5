#include "state_db/tables/layer_disk.h"

#include <string>

#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {
namespace {

// The layers below the workspace and its snapshots.
constexpr std::string_view kMine =
    "mine (layer) AS (SELECT layer FROM workspaces WHERE id = ?1 AND layer IS NOT NULL UNION "
    "SELECT layer FROM snapshots WHERE workspace = ?1 AND layer IS NOT NULL UNION SELECT "
    "next_layer FROM snapshots WHERE workspace = ?1 AND next_layer IS NOT NULL UNION SELECT "
    "layers.parent FROM layers JOIN mine ON layers.id = mine.layer WHERE layers.parent IS NOT NULL "
    "UNION SELECT instead_of FROM layers JOIN mine ON layers.id = mine.layer WHERE instead_of IS "
    "NOT NULL)";
// Users of the layers in `mine`. above: all layers over one of these; users: their workspaces.
constexpr std::string_view kOwners =
    "above (layer) AS (SELECT layer FROM mine UNION SELECT layers.id FROM layers JOIN above ON "
    "layers.parent = above.layer), "
    "users (workspace, layer) AS (SELECT workspaces.id, workspaces.layer FROM above JOIN "
    "workspaces ON workspaces.layer = above.layer UNION SELECT snapshots.workspace, "
    "snapshots.layer FROM above JOIN snapshots ON snapshots.layer = above.layer UNION SELECT "
    "users.workspace, layers.parent FROM layers JOIN users ON layers.id = users.layer WHERE "
    "layers.parent IS NOT NULL), "
    "owners (layer, owner) AS (SELECT users.layer, coalesce(min(workspaces.id) FILTER (WHERE "
    "workspaces.state <> 'archived'), min(workspaces.id)) FROM users JOIN workspaces ON "
    "workspaces.id = users.workspace GROUP BY users.layer) ";

void read_row(Statement& query, LayerDiskRow& row) {
  query.read(row.id, row.frozen, row.measured, row.bytes, row.files);
}

std::string recursive(std::string_view mine) {
  return "WITH RECURSIVE " + std::string(mine) + ", " + std::string(kOwners);
}

}  // namespace

std::vector<LayerDiskRow> LayerDisk::owned_by(base::WorkspaceId workspace) {
  Statement query = store_.prepare(
      recursive(kMine) +
      "SELECT layers.id, layers.frozen, layers.measured OR layers.cold, iif(layers.cold, 0, "
      "coalesce(layers.disk_bytes, 0)), iif(layers.cold, 0, coalesce(layers.disk_files, 0)) "
      "FROM mine JOIN layers ON layers.id = mine.layer LEFT JOIN owners "
      "ON owners.layer = mine.layer WHERE coalesce(owners.owner, ?1) = ?1 ORDER BY layers.id");
  return query.all<LayerDiskRow>(read_row, workspace);
}

std::vector<base::WorkspaceId> LayerDisk::owners_of(const std::vector<LayerDiskRow>& layers) {
  std::vector<base::LayerId> ids;
  for (const auto& layer : layers) ids.push_back(layer.id);
  Statement query = store_.prepare(
      recursive("mine (layer) AS (SELECT value FROM json_each(?1))") +
      "SELECT DISTINCT owners.owner FROM mine JOIN owners ON owners.layer = mine.layer");
  return query.column<base::WorkspaceId>(ids);
}

std::optional<LayerDiskRow> LayerDisk::find(base::LayerId layer) {
  Statement query = store_.prepare(
      "SELECT id, frozen, measured, disk_bytes, coalesce(disk_files, 0) FROM layers WHERE id = ? "
      "AND disk_bytes IS NOT NULL");
  return query.first<LayerDiskRow>(read_row, layer);
}

void LayerDisk::set_frozen(base::LayerId layer, uint64_t bytes, uint64_t files) {
  write(store_,
        "UPDATE layers SET disk_bytes = ?, disk_files = ?, measured = 1 WHERE id = ? AND frozen",
        bytes, files, layer);
}

void LayerDisk::set_writable(base::LayerId layer, uint64_t bytes, uint64_t files) {
  write(store_, "UPDATE layers SET disk_bytes = ?, disk_files = ? WHERE id = ? AND NOT frozen",
        bytes, files, layer);
}

void LayerDisk::share(const std::vector<base::LayerId>& layers) {
  if (layers.empty()) return;
  write(store_,
        "UPDATE layers SET kin = ?1, measured = 0 WHERE id IN (SELECT value FROM json_each(?2)) "
        "OR kin IN (SELECT kin FROM layers WHERE kin IS NOT NULL "
        "AND id IN (SELECT value FROM json_each(?2)))",
        layers.front(), layers);
}

void LayerDisk::give_up(const std::vector<base::LayerId>& layers) {
  write(store_,
        "UPDATE layers SET measured = 0 WHERE kin IN (SELECT kin FROM layers WHERE kin IS NOT NULL "
        "AND id IN (SELECT value FROM json_each(?)))",
        layers);
}

uint64_t LayerDisk::journal_bytes(base::WorkspaceId workspace) {
  Statement query = store_.prepare("SELECT journal_bytes FROM workspaces WHERE id = ?");
  return query.value<uint64_t>(workspace).value_or(0);
}

void LayerDisk::recount(base::WorkspaceId workspace, std::optional<uint64_t> journal_bytes) {
  store_.transaction([&] {
    uint64_t bytes = 0;
    uint64_t files = 0;
    for (const auto& layer : owned_by(workspace)) {
      bytes += layer.bytes;
      files += layer.files;
    }
    change(store_,
           "UPDATE workspaces SET journal_bytes = coalesce(?1, journal_bytes), "
           "disk_bytes = ?2 + coalesce(?1, journal_bytes), disk_files = ?3 WHERE id = ?4",
           journal_bytes, bytes, files, workspace);
  });
}

}  // namespace moorage::state_db
