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
      "UPDATE repositories SET default_branch = coalesce(?, default_branch), fetched_wall_ms = "
      "coalesce(?, fetched_wall_ms), checked_wall_ms = coalesce(?, checked_wall_ms), "
      "stale_reason = coalesce(?, stale_reason), bytes = coalesce(?, bytes) WHERE id = ?",
      facts.default_branch, facts.fetched_wall_ms, facts.checked_wall_ms, facts.stale_reason,
      facts.bytes, id);
  require_row(rows > 0, id);
}

}  // namespace moorage::state_db
