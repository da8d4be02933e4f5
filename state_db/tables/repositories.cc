#include "state_db/tables/repositories.h"

#include "base/clock.h"
#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {

namespace {

constexpr std::string_view kSelect =
    "SELECT id, url, fetch_url, scope, name, state, reason, default_branch, fetched_wall_ms, "
    "checked_wall_ms, stale_reason, bytes, created_wall_ms FROM repositories ";

void read_row(Statement& query, RepositoryRow& row) {
  query.read(row.id, row.url, row.fetch_url, row.scope, row.name, row.state, row.reason,
             row.default_branch, row.fetched_wall_ms, row.checked_wall_ms, row.stale_reason,
             row.bytes, row.created_wall_ms);
}

Statement select(Store& store, std::string_view where) {
  return store.prepare(std::string(kSelect) + std::string(where));
}

}  // namespace

base::RepoId RepositoryTable::create(const NewRepository& repository) {
  return store_.transaction([&] {
    if (find(repository.url, repository.scope)) {
      throw Error(Code::already_exists, repository.url + " is already cached");
    }
    const base::RepoId id{insert(
        store_, "INSERT INTO repositories (url, fetch_url, scope, name, state, created_wall_ms)",
        repository.url, repository.fetch_url, repository.scope, repository.name,
        LifeCycle<RepositoryState>::kFirst, store_.clock().wall_ms())};
    store_.record_new<RepositoryState>(id, repository.url);
    return id;
  });
}

std::pair<base::RepoId, bool> RepositoryTable::find_or_create(const NewRepository& repository) {
  return store_.transaction([&]() -> std::pair<base::RepoId, bool> {
    if (auto row = find(repository.url, repository.scope)) return {row->id, false};
    return {create(repository), true};
  });
}

RepositoryRow RepositoryTable::get(base::RepoId id) { return require_row(find(id), id); }

std::optional<RepositoryRow> RepositoryTable::find(base::RepoId id) {
  return select(store_, "WHERE id = ?").first<RepositoryRow>(read_row, id);
}

std::optional<RepositoryRow> RepositoryTable::find(const std::string& url,
                                                   const std::string& scope) {
  return select(store_, "WHERE url = ? AND scope = ?").first<RepositoryRow>(read_row, url, scope);
}

std::vector<RepositoryRow> RepositoryTable::list() {
  return select(store_, "ORDER BY id").all<RepositoryRow>(read_row);
}

void RepositoryTable::set_facts(base::RepoId id, const RepositoryFacts& facts) {
  const int64_t rows = write(
      store_,
      "UPDATE repositories SET fetch_url = coalesce(?, fetch_url), default_branch = coalesce(?, "
      "default_branch), fetched_wall_ms = coalesce(?, fetched_wall_ms), checked_wall_ms = "
      "coalesce(?, checked_wall_ms), stale_reason = coalesce(?, stale_reason), bytes = coalesce(?, "
      "bytes) WHERE id = ?",
      facts.fetch_url, facts.default_branch, facts.fetched_wall_ms, facts.checked_wall_ms,
      facts.stale_reason, facts.bytes, id);
  require_row(rows > 0, id);
}

namespace {

constexpr std::string_view kSelectTree =
    "SELECT repository, commit_id, files, bytes, submodules, lfs_files, synced, boot_id, "
    "created_wall_ms, last_used_wall_ms, parent, disk_files, disk_bytes FROM base_trees "
    "WHERE repository = ? ";

void read_tree(Statement& query, BaseTreeRow& row) {
  query.read(row.repository, row.commit, row.files, row.bytes, row.submodules, row.lfs_files,
             row.synced, row.boot_id, row.created_wall_ms, row.last_used_wall_ms, row.parent,
             row.disk_files, row.disk_bytes);
}

void refuse_used(Store& store, base::RepoId repository, const std::string& commit) {
  Statement query =
      store.prepare("SELECT id FROM layers WHERE repository = ? AND base_commit = ? LIMIT 1");
  if (const auto layer = query.value<base::LayerId>(repository, commit))
    throw Error(Code::conflict, "the files of commit " + commit + " are in use by " + layer->str(),
                "try again when the removal of its workspace has ended");
}

void refuse_stood_on(Store& store, base::RepoId repository, const std::string& commit) {
  Statement query =
      store.prepare("SELECT commit_id FROM base_trees WHERE repository = ? AND parent = ? LIMIT 1");
  if (const auto above = query.value<std::string>(repository, commit))
    throw Error(Code::conflict, "base tree " + *above + " builds on " + commit);
}

}  // namespace

void BaseTreeTable::put(const BaseTreeRow& tree) {
  store_.transaction([&] {
    if (!tree.parent.empty() && !find(tree.repository, tree.parent))
      throw Error(Code::conflict, "base tree " + tree.parent + " was removed meanwhile");
    insert(store_,
           "INSERT OR REPLACE INTO base_trees (repository, commit_id, files, bytes, submodules, "
           "lfs_files, synced, boot_id, created_wall_ms, last_used_wall_ms, parent, disk_files, "
           "disk_bytes)",
           tree.repository, tree.commit, tree.files, tree.bytes, tree.submodules, tree.lfs_files,
           tree.synced, tree.boot_id, tree.created_wall_ms, tree.last_used_wall_ms, tree.parent,
           tree.disk_files, tree.disk_bytes);
  });
}

std::optional<BaseTreeRow> BaseTreeTable::find(base::RepoId repository, const std::string& commit) {
  Statement query = store_.prepare(std::string(kSelectTree) + "AND commit_id = ?");
  return query.first<BaseTreeRow>(read_tree, repository, commit);
}

std::vector<BaseTreeRow> BaseTreeTable::list(base::RepoId repository) {
  Statement query = store_.prepare(std::string(kSelectTree) + "ORDER BY commit_id");
  return query.all<BaseTreeRow>(read_tree, repository);
}

void BaseTreeTable::set_synced(base::RepoId repository, const std::string& commit) {
  write(store_, "UPDATE base_trees SET synced = 1 WHERE repository = ? AND commit_id = ?",
        repository, commit);
}

void BaseTreeTable::touch(base::RepoId repository, const std::string& commit) {
  write(store_,
        "UPDATE base_trees SET last_used_wall_ms = ? WHERE repository = ? AND commit_id = ?",
        store_.clock().wall_ms(), repository, commit);
}

void BaseTreeTable::set_parent(base::RepoId repository, const std::string& commit,
                               const std::string& parent) {
  write(store_, "UPDATE base_trees SET parent = ? WHERE repository = ? AND commit_id = ?", parent,
        repository, commit);
}

void BaseTreeTable::remove(base::RepoId repository, const std::string& commit) {
  store_.transaction([&] {
    refuse_used(store_, repository, commit);
    refuse_stood_on(store_, repository, commit);
    change(store_, "DELETE FROM base_trees WHERE repository = ? AND commit_id = ?", repository,
           commit);
  });
}

void BaseTreeTable::remove_all(base::RepoId repository) {
  store_.transaction([&] {
    for (const auto& tree : list(repository)) refuse_used(store_, repository, tree.commit);
    change(store_, "DELETE FROM base_trees WHERE repository = ?", repository);
  });
}

}  // namespace moorage::state_db
