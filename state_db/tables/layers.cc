#include "state_db/tables/layers.h"

#include "base/clock.h"
#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/tables/layer_disk.h"

namespace moorage::state_db {

namespace {

constexpr std::string_view kColumns =
    "id, parent, repository, base_commit, frozen, created_wall_ms, cold, disk_bytes";

void read_row(Statement& query, LayerRow& row) {
  query.read(row.id, row.parent, row.repository, row.base_commit, row.frozen, row.created_wall_ms,
             row.cold, row.disk_bytes);
}

std::string select(std::string_view where) {
  return "SELECT " + std::string(kColumns) + " FROM layers " + std::string(where);
}

// The parent may still change while a snapshot is taken; a workspace over it becomes ready only
// after the freeze.
void check_parent(const LayerRow& parent, const NewLayer& layer) {
  if (parent.repository != layer.repository || parent.base_commit != layer.base_commit) {
    throw Error(Code::internal, "layer " + parent.id.str() + " starts from another commit");
  }
  if (parent.cold) {
    throw Error(Code::conflict, parent.id.str() + " is in an archive",
                "restore its workspace: moorage unarchive NAME");
  }
}

}  // namespace

base::LayerId LayerTable::create(const NewLayer& layer) {
  return store_.transaction([&] {
    if (layer.parent) check_parent(get(layer.parent), layer);
    return base::LayerId{
        insert(store_, "INSERT INTO layers (parent, repository, base_commit, created_wall_ms)",
               layer.parent, layer.repository, layer.base_commit, store_.clock().wall_ms())};
  });
}

LayerRow LayerTable::get(base::LayerId id) { return require_row(find(id), id); }

std::optional<LayerRow> LayerTable::find(base::LayerId id) {
  return store_.prepare(select("WHERE id = ?")).first<LayerRow>(read_row, id);
}

std::vector<LayerRow> LayerTable::list() {
  return store_.prepare(select("ORDER BY id")).all<LayerRow>(read_row);
}

std::vector<base::LayerId> LayerTable::unknown(const std::vector<base::LayerId>& ids) {
  Statement query =
      store_.prepare("SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM layers)");
  return query.column<base::LayerId>(ids);
}

std::vector<LayerRow> LayerTable::chain(base::LayerId top) {
  // By depth, not by id: merged layers are above a younger one.
  Statement query = store_.prepare(
      "WITH RECURSIVE below (layer, depth) AS (SELECT ?, 0 UNION ALL SELECT layers.parent, "
      "depth + 1 FROM layers JOIN below ON layers.id = layer WHERE layers.parent IS NOT NULL) " +
      select("JOIN below ON layer = id ORDER BY depth"));
  return query.all<LayerRow>(read_row, top);
}

void LayerTable::freeze(base::LayerId id) {
  require_row(write(store_, "UPDATE layers SET frozen = 1 WHERE id = ?", id) > 0, id);
}

void LayerTable::exchange_parent(base::LayerId id, base::LayerId from, base::LayerId to) {
  store_.transaction([&] {
    check_parent(
        get(to),
        {.parent = to, .repository = get(id).repository, .base_commit = get(id).base_commit});
    if (change(store_, "UPDATE layers SET parent = ? WHERE id = ? AND parent = ?", to, id, from) ==
        0) {
      throw Error(Code::conflict, "layer " + from.str() + " is not below " + id.str());
    }
    change(store_,
           "UPDATE layers SET instead_of = ?, "
           "mounted_upto = (SELECT max(id) FROM layers) WHERE id = ?",
           from, to);
  });
}

std::vector<ReplacedLayer> LayerTable::replaced() {
  Statement query = store_.prepare(
      "SELECT id, mounted_upto FROM layers WHERE instead_of IS NOT NULL ORDER BY id");
  return query.all<ReplacedLayer>(
      [](Statement& row, ReplacedLayer& layer) { row.read(layer.by, layer.mounted_upto); });
}

void LayerTable::forget_replaced(base::LayerId by) {
  write(store_, "UPDATE layers SET instead_of = NULL, mounted_upto = NULL WHERE id = ?", by);
}

std::vector<base::WorkspaceId> LayerTable::workspaces_on(base::LayerId id) {
  Statement query = store_.prepare(
      "WITH RECURSIVE above (layer) AS (SELECT ? UNION SELECT layers.id FROM layers "
      "JOIN above ON layers.parent = above.layer) SELECT workspaces.id FROM workspaces "
      "JOIN above ON workspaces.layer = above.layer ORDER BY workspaces.id");
  return query.column<base::WorkspaceId>(id);
}

void LayerTable::remove(const std::vector<base::LayerId>& ids) {
  try {
    // One statement, so `ids` may list a layer and its parent in any order.
    store_.transaction([&] {
      LayerDisk(store_).give_up(ids);
      change(store_, "DELETE FROM layers WHERE id IN (SELECT value FROM json_each(?))", ids);
    });
  } catch (const Error& error) {
    if (error.code() != Code::conflict) throw;
    throw Error(Code::conflict, ids.front().str() + (ids.size() > 1 ? " or another layer" : "") +
                                    " is in use by a workspace or by a layer above it");
  }
}

std::set<std::pair<base::RepoId, std::string>> LayerTable::bases() {
  Statement query = store_.prepare("SELECT DISTINCT repository, base_commit FROM layers");
  std::set<std::pair<base::RepoId, std::string>> bases;
  std::pair<base::RepoId, std::string> base;
  while (query.step()) {
    query.read(base.first, base.second);
    bases.insert(base);
  }
  return bases;
}

std::vector<LayerTable::Archived> LayerTable::only_archived() {
  // away: archived workspaces. hot: layers that other workspaces may need. below: layers below the
  // archived workspaces.
  Statement query = store_.prepare(
      "WITH RECURSIVE away (workspace, archive) AS (SELECT workspaces.id, archives.id FROM "
      "workspaces JOIN archives ON archives.workspace = workspaces.id WHERE archives.whole = 1 AND "
      "workspaces.state IN ('archived','deleting','deleted')), "
      "hot (layer) AS (SELECT layer FROM workspaces WHERE layer IS NOT NULL AND id NOT IN (SELECT "
      "workspace FROM away) UNION SELECT layer FROM snapshots WHERE layer IS NOT NULL AND "
      "workspace NOT IN (SELECT workspace FROM away) UNION SELECT next_layer FROM snapshots WHERE "
      "next_layer IS NOT NULL UNION SELECT parent FROM layers JOIN hot ON layers.id = hot.layer "
      "WHERE parent IS NOT NULL UNION SELECT instead_of FROM layers JOIN hot ON layers.id = "
      "hot.layer WHERE instead_of IS NOT NULL), "
      "below (workspace, archive, layer) AS (SELECT away.workspace, archive, workspaces.layer FROM "
      "away JOIN workspaces ON workspaces.id = away.workspace WHERE workspaces.layer IS NOT NULL "
      "UNION SELECT away.workspace, archive, snapshots.layer FROM away JOIN snapshots ON "
      "snapshots.workspace = away.workspace WHERE snapshots.layer IS NOT NULL UNION SELECT "
      "workspace, archive, layers.parent FROM below JOIN layers ON layers.id = below.layer WHERE "
      "layers.parent IS NOT NULL), "
      "partial (workspace) AS (SELECT workspace FROM below WHERE NOT EXISTS (SELECT 1 FROM "
      "archive_layers WHERE archive_layers.archive = below.archive AND archive_layers.layer = "
      "below.layer)), "
      "kept (layer) AS (SELECT layer FROM below WHERE workspace IN (SELECT workspace FROM "
      "partial)) "
      "SELECT below.layer, workspace, cold FROM below JOIN layers ON layers.id = below.layer WHERE "
      "frozen = 1 AND below.layer NOT IN (SELECT layer FROM hot) AND below.layer NOT IN (SELECT "
      "layer FROM kept) ORDER BY below.layer, workspace");
  return query.all<Archived>(
      [](Statement& row, Archived& layer) { row.read(layer.layer, layer.workspace, layer.cold); });
}

void LayerTable::set_cold(const std::vector<base::LayerId>& ids, bool cold) {
  write(store_, "UPDATE layers SET cold = ? WHERE id IN (SELECT value FROM json_each(?))", cold,
        ids);
}

std::vector<LayerRow> LayerTable::unused() {
  Statement query = store_.prepare(
      "WITH RECURSIVE used (layer) AS (SELECT layer FROM workspaces WHERE layer IS NOT NULL UNION "
      "SELECT layer FROM snapshots WHERE layer IS NOT NULL UNION SELECT next_layer FROM snapshots "
      "WHERE next_layer IS NOT NULL UNION SELECT layers.parent FROM layers "
      "JOIN used ON layers.id = used.layer WHERE layers.parent IS NOT NULL UNION SELECT instead_of "
      "FROM layers JOIN used ON layers.id = used.layer WHERE instead_of IS NOT NULL) " +
      select("WHERE id NOT IN (SELECT layer FROM used) ORDER BY id"));
  return query.all<LayerRow>(read_row);
}

}  // namespace moorage::state_db
