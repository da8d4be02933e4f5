// BaseTrees, declared in repositories.h.
#include "base/clock.h"
#include "base/error.h"
#include "state_db/repositories.h"
#include "state_db/statement.h"
#include "state_db/store.h"

namespace moorage::state_db {

using base::Code;
using base::Error;

namespace {

constexpr std::string_view kSelect =
    "SELECT repository, commit_id, files, bytes, submodules, lfs_files, synced, boot_id, "
    "created_wall_ms, last_used_wall_ms FROM base_trees WHERE repository = ? ";

BaseTreeRow read_row(Statement& query) {
  BaseTreeRow row;
  query.read(row.repository, row.commit, row.files, row.bytes, row.submodules, row.lfs_files,
             row.synced, row.boot_id, row.created_wall_ms, row.last_used_wall_ms);
  return row;
}

void refuse_used(Store& store, base::RepoId repository, const std::string& commit) {
  Statement query =
      store.prepare("SELECT id FROM layers WHERE repository = ? AND base_commit = ? LIMIT 1");
  query.bind(repository, commit);
  if (!query.step()) return;
  base::LayerId layer;
  query.read(layer);
  throw Error(Code::conflict, "base tree " + commit + " is in use by " + layer.str());
}

}  // namespace

void BaseTrees::put(const BaseTreeRow& tree) {
  store_.transaction([&] {
    store_
        .prepare(
            "INSERT OR REPLACE INTO base_trees (repository, commit_id, files, bytes, submodules, "
            "lfs_files, synced, boot_id, created_wall_ms, last_used_wall_ms) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .run(tree.repository, tree.commit, tree.files, tree.bytes, tree.submodules, tree.lfs_files,
             tree.synced, tree.boot_id, tree.created_wall_ms, tree.last_used_wall_ms);
  });
}

std::optional<BaseTreeRow> BaseTrees::find(base::RepoId repository, const std::string& commit) {
  Statement query = store_.prepare(std::string(kSelect) + "AND commit_id = ?");
  query.bind(repository, commit);
  if (!query.step()) return std::nullopt;
  return read_row(query);
}

std::vector<BaseTreeRow> BaseTrees::list(base::RepoId repository) {
  Statement query = store_.prepare(std::string(kSelect) + "ORDER BY commit_id");
  query.bind(repository);
  std::vector<BaseTreeRow> rows;
  while (query.step()) rows.push_back(read_row(query));
  return rows;
}

void BaseTrees::set_synced(base::RepoId repository, const std::string& commit) {
  store_.transaction([&] {
    store_.prepare("UPDATE base_trees SET synced = 1 WHERE repository = ? AND commit_id = ?")
        .run(repository, commit);
  });
}

void BaseTrees::touch(base::RepoId repository, const std::string& commit) {
  store_.transaction([&] {
    store_
        .prepare(
            "UPDATE base_trees SET last_used_wall_ms = ? WHERE repository = ? AND commit_id = ?")
        .run(store_.clock().wall_ms(), repository, commit);
  });
}

void BaseTrees::remove(base::RepoId repository, const std::string& commit) {
  store_.transaction([&] {
    refuse_used(store_, repository, commit);
    store_.prepare("DELETE FROM base_trees WHERE repository = ? AND commit_id = ?")
        .run(repository, commit);
  });
}

}  // namespace moorage::state_db
