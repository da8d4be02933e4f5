#include "state_db/tables/repositories.h"

#include "base/clock.h"
#include "base/error.h"
#include "state_db/statement.h"
#include "state_db/store.h"

namespace moorage::state_db {

namespace {

constexpr std::string_view kSelect =
    "SELECT id, url, fetch_url, scope, name, state, reason, default_branch, fetched_wall_ms, "
    "checked_wall_ms, "
    "stale_reason, bytes, created_wall_ms FROM repositories ";

RepositoryRow read_row(Statement& query) {
  RepositoryRow row;
  query.read(row.id, row.url, row.fetch_url, row.scope, row.name, row.state, row.reason,
             row.default_branch, row.fetched_wall_ms, row.checked_wall_ms, row.stale_reason,
             row.bytes, row.created_wall_ms);
  return row;
}

std::string select(std::string_view where) { return std::string(kSelect) + std::string(where); }

}  // namespace

base::RepoId RepositoryTable::create(const NewRepository& repository) {
  return store_.transaction([&] {
    if (find(repository.url, repository.scope)) {
      throw Error(Code::already_exists, repository.url + " is already cached");
    }
    store_
        .prepare(
            "INSERT INTO repositories (url, fetch_url, scope, name, state, created_wall_ms) "
            "VALUES (?, ?, ?, ?, ?, ?)")
        .run(repository.url, repository.fetch_url, repository.scope, repository.name,
             LifeCycle<RepositoryState>::kFirst, store_.clock().wall_ms());
    const base::RepoId id{store_.last_insert_id()};
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

RepositoryRow RepositoryTable::get(base::RepoId id) {
  if (auto row = find(id)) return *row;
  throw Error(Code::not_found, "there is no " + id.str());
}

std::optional<RepositoryRow> RepositoryTable::find(base::RepoId id) {
  Statement query = store_.prepare(select("WHERE id = ?"));
  query.bind(id);
  if (!query.step()) return std::nullopt;
  return read_row(query);
}

std::optional<RepositoryRow> RepositoryTable::find(const std::string& url,
                                                   const std::string& scope) {
  Statement query = store_.prepare(select("WHERE url = ? AND scope = ?"));
  query.bind(url, scope);
  if (!query.step()) return std::nullopt;
  return read_row(query);
}

std::vector<RepositoryRow> RepositoryTable::list() {
  Statement query = store_.prepare(select("ORDER BY id"));
  std::vector<RepositoryRow> rows;
  while (query.step()) rows.push_back(read_row(query));
  return rows;
}

void RepositoryTable::set_facts(base::RepoId id, const RepositoryFacts& facts) {
  store_.transaction([&] {
    const int64_t rows =
        store_
            .prepare(
                "UPDATE repositories SET default_branch = coalesce(?, default_branch), "
                "fetched_wall_ms = coalesce(?, fetched_wall_ms), "
                "checked_wall_ms = coalesce(?, checked_wall_ms), "
                "stale_reason = coalesce(?, stale_reason), bytes = coalesce(?, bytes) WHERE id = ?")
            .run(facts.default_branch, facts.fetched_wall_ms, facts.checked_wall_ms,
                 facts.stale_reason, facts.bytes, id);
    if (rows == 0) throw Error(Code::not_found, "there is no " + id.str());
  });
}

}  // namespace moorage::state_db
