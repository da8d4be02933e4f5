#include "state_db/tables/workspaces.h"

#include "base/clock.h"
#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/idempotency.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"

namespace moorage::state_db {

namespace {

const std::string& select_columns() {
  static const std::string text = [] {
    std::string columns =
        "SELECT id, name, owner_uid, team_gid, repository, base_ref, base_commit, branch, layer, "
        "backend, image, state, reason, disposable, changes_files, changes_wall_ms, unpushed, "
        "disk_bytes, disk_files, rest_age_ms, created_wall_ms, deleted_wall_ms, deleted_age_ms, "
        "purge_wall_ms, purged_wall_ms, idempotency_key, used_execs, used_exec_ms, stands_on, "
        "forked_from, attempt, attempts, runtime, fork_of, head_commit, "
        "raw_commit, moved_commit";
    const WorkspacePolicy any;
    each_policy_field([&](const std::string& name, const auto&) { columns += ", " + name; }, any);
    return columns + " FROM workspaces WHERE ";
  }();
  return text;
}

std::string fork_of_text(const std::optional<ForkOrigin>& origin) {
  if (!origin) return {};
  return origin->store + "/" + origin->workspace.str() + "/" + origin->snapshot.str() + "/" +
         origin->name;
}

std::optional<ForkOrigin> parse_fork_of(const std::string& text) {
  const size_t workspace = text.find('/');
  if (workspace == std::string::npos) return std::nullopt;
  const size_t snapshot = text.find('/', workspace + 1);
  const size_t name = text.find('/', snapshot + 1);
  const auto part = [&](size_t from, size_t to) { return text.substr(from + 1, to - from - 1); };
  return ForkOrigin{
      text.substr(0, workspace),
      base::WorkspaceId::parse(part(workspace, snapshot)).value_or(base::WorkspaceId{}),
      base::SnapshotId::parse(part(snapshot, name)).value_or(base::SnapshotId{}),
      text.substr(name + 1)};
}

void read_labels(Store& store, WorkspaceRow& row) {
  Statement query = store.prepare("SELECT name, value FROM workspace_labels WHERE workspace = ?");
  query.bind(row.id);
  while (query.step()) {
    std::string name;
    std::string value;
    query.read(name, value);
    row.labels[name] = value;
  }
}

void read_row(Statement& query, WorkspaceRow& row) {
  std::string fork_of;
  query.read(row.id, row.name, row.owner_uid, row.team_gid, row.repository, row.base_ref,
             row.base_commit, row.branch, row.layer, row.backend, row.image, row.state, row.reason,
             row.disposable, row.changes_files, row.changes_wall_ms, row.unpushed, row.disk_bytes,
             row.disk_files, row.rest_age_ms, row.created_wall_ms, row.deleted_wall_ms,
             row.deleted_age_ms, row.purge_wall_ms, row.purged_wall_ms, row.idempotency_key,
             row.used_execs, row.used_exec_ms, row.stands_on, row.forked_from, row.attempt,
             row.attempts, row.runtime, fork_of, row.head_commit, row.raw_commit, row.moved_commit);
  row.fork_of = parse_fork_of(fork_of);
  each_policy_field([&](const char*, auto& field) { query.read(field); }, row.policy);
}

// The statement holds the store's lock, so rows and labels are consistent.
std::vector<WorkspaceRow> read_all(Store& store, Statement& query) {
  std::vector<WorkspaceRow> rows;
  while (query.step()) {
    WorkspaceRow& row = rows.emplace_back();
    read_row(query, row);
    read_labels(store, row);
  }
  return rows;
}

std::vector<WorkspaceRow> select(Store& store, std::string_view where, const auto&... values) {
  Statement query = store.prepare(select_columns() + std::string(where));
  query.bind(values...);
  return read_all(store, query);
}

void insert_row(Store& store, const NewWorkspace& wanted, base::LayerId layer,
                const std::string& moved_commit) {
  const int64_t rest_age_ms = StoreAge(store).now_ms();
  std::string columns =
      "INSERT INTO workspaces (name, owner_uid, team_gid, repository, base_ref, base_commit, "
      "branch, layer, backend, image, state, disposable, created_wall_ms, idempotency_key, "
      "request_hash, rest_age_ms, stands_on, forked_from, attempt, attempts, runtime, fork_of, "
      "head_commit, raw_commit, moved_commit";
  std::string places =
      ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?";
  each_policy_field(
      [&](const std::string& name, const auto&) {
        columns += ", " + name;
        places += ", ?";
      },
      wanted.policy);
  Statement insert = store.prepare(columns + places + ")");
  insert.bind(wanted.name, wanted.owner_uid, wanted.team_gid, wanted.repository, wanted.base_ref,
              wanted.base_commit, wanted.branch, layer, wanted.backend, wanted.image,
              LifeCycle<WorkspaceState>::kFirst, wanted.disposable, store.clock().wall_ms(),
              wanted.idempotency_key, wanted.request_hash, rest_age_ms, wanted.forked_from,
              wanted.forked_from, wanted.attempt, wanted.attempts, wanted.runtime,
              fork_of_text(wanted.fork_of), wanted.head_commit, wanted.raw_commit, moved_commit);
  each_policy_field([&](const char*, const auto& field) { insert.bind(field); }, wanted.policy);
  insert.run();
}

}  // namespace

std::optional<WorkspaceTable::Created> WorkspaceTable::find_made(const NewWorkspace& wanted) {
  if (!wanted.idempotency_key) return std::nullopt;
  Statement query = store_.prepare(
      "SELECT id, layer, request_hash FROM workspaces WHERE owner_uid = ? AND idempotency_key = ?");
  query.bind(wanted.owner_uid, wanted.idempotency_key);
  if (!query.step()) return std::nullopt;
  Created made{.id = {}, .layer = {}, .existed = true};
  std::string hash;
  query.read(made.id, made.layer, hash);
  require_same_request(hash == wanted.request_hash, *wanted.idempotency_key);
  return made;
}

WorkspaceTable::Created WorkspaceTable::create(const NewWorkspace& wanted) {
  return store_.transaction([&]() -> Created {
    if (auto made = find_made(wanted)) return *made;
    if (find_live(wanted.owner_uid, wanted.name)) {
      throw Error(Code::already_exists, "you already have a workspace " + wanted.name,
                  "choose another name, or delete it first");
    }
    LayerTable layers(store_);
    // An imported fork has its own copy of its origin's layers.
    const bool on_origin = wanted.forked_from && !wanted.stands_on;
    base::LayerId parent = wanted.stands_on;
    std::string moved_commit = wanted.moved_commit;
    if (on_origin) {
      const SnapshotRow origin = SnapshotTable(store_).get(wanted.forked_from);
      parent = origin.layer;
      moved_commit = origin.moved_commit;
    }
    const base::LayerId layer = layers.create(
        {.parent = parent, .repository = wanted.repository, .base_commit = wanted.base_commit});
    insert_row(store_, wanted, layer, moved_commit);
    const base::WorkspaceId id{store_.last_insert_id()};
    for (const auto& [name, value] : wanted.labels) set_label(id, name, value);
    store_.record_new<WorkspaceState>(id, wanted.name);
    return {.id = id, .layer = layer, .existed = false};
  });
}

void WorkspaceTable::set_ready(base::WorkspaceId id, const WorkspaceFacts& facts) {
  store_.transaction([&] {
    const LayerRow layer = LayerTable(store_).get(get(id).layer);
    if (layer.parent && !LayerTable(store_).get(layer.parent).frozen)
      throw Error(Code::conflict, layer.parent.str() + " can still change: freeze it first");
    set_facts(id, facts);
    store_.move(id, WorkspaceState::creating, WorkspaceState::ready);
  });
}

void WorkspaceTable::fail(base::WorkspaceId id, const std::string& reason) {
  store_.transaction([&] {
    store_.move(id, WorkspaceState::creating, WorkspaceState::failed, reason);
    change(store_, "UPDATE workspaces SET idempotency_key = NULL WHERE id = ?", id);
    IdempotencyKeys(store_).forget_begun(id.str());
  });
}

WorkspaceRow WorkspaceTable::get(base::WorkspaceId id) { return require_row(find(id), id); }

std::optional<WorkspaceRow> WorkspaceTable::find(base::WorkspaceId id) {
  return only(select(store_, "id = ?", id));
}

std::optional<WorkspaceRow> WorkspaceTable::find_live(uint32_t owner_uid, const std::string& name) {
  return only(select(store_, "owner_uid = ? AND name = ? AND state NOT IN ('deleted','failed')",
                     owner_uid, name));
}

std::vector<WorkspaceRow> WorkspaceTable::find_by_name(const std::string& name,
                                                       const std::optional<Viewer>& seen_by) {
  const Seen seen(seen_by);
  return select(store_,
                "name = ?1 AND state NOT IN ('deleted','failed') AND (?2 IS NULL OR owner_uid = ?2 "
                "OR team_gid IN (SELECT value FROM json_each(?3))) ORDER BY id",
                name, seen.uid, seen.gids);
}

std::vector<WorkspaceRow> WorkspaceTable::list(const WorkspaceQuery& query) {
  std::string where =
      "purged_wall_ms IS NULL AND (?1 IS NULL OR owner_uid = ?1) AND "
      "(?2 IS NULL OR repository = ?2) AND (?3 IS NULL OR owner_uid = ?3 OR "
      "team_gid IN (SELECT value FROM json_each(?4))) AND (?5 = '' OR name = ?5) AND "
      "(NOT ?6 OR disposable)";
  if (query.state) {
    where += " AND state = '" + std::string(state_name(*query.state)) + "'";
  } else {
    if (!query.with_deleted) where += " AND state <> 'deleted'";
    if (!query.with_failed) where += " AND state <> 'failed'";
  }
  // A page walks workspaces_left in order. For all rows of a state, the plus stops SQLite from
  // walking all states in order.
  where += query.limit > 0 ? " AND id > ?7 ORDER BY id LIMIT ?8" : " ORDER BY +id";
  const Seen seen(query.seen_by);
  Statement statement = store_.prepare(select_columns() + where);
  statement.bind(query.owner_uid, query.repository, seen.uid, seen.gids, query.name,
                 query.only_disposable);
  if (query.limit > 0) statement.bind(query.after.value, query.limit);
  return read_all(store_, statement);
}

uint64_t WorkspaceTable::count(base::RepoId repository) {
  Statement query = store_.prepare(
      "SELECT count(*) FROM workspaces WHERE purged_wall_ms IS NULL AND repository = ?");
  return query.value<uint64_t>(repository).value();
}

base::WorkspaceId WorkspaceTable::last_made() {
  // The index of live ones includes those being created.
  Statement query = store_.prepare(
      "SELECT coalesce((SELECT min(id) - 1 FROM workspaces WHERE state = 'creating' "
      "AND state NOT IN ('deleted','failed')), (SELECT max(id) FROM workspaces), 0)");
  return query.value<base::WorkspaceId>().value();
}

std::vector<base::WorkspaceId> WorkspaceTable::unknown(const std::vector<base::WorkspaceId>& ids) {
  Statement query = store_.prepare(
      "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM workspaces)");
  return query.column<base::WorkspaceId>(ids);
}

std::string WorkspaceTable::free_name(uint32_t owner_uid, const std::string& wish) {
  const auto name = [&](uint64_t number) {
    return number == 1 ? wish : wish + "-" + std::to_string(number);
  };
  const auto is_taken = [&](uint64_t number) {
    Statement query = store_.prepare(
        "SELECT 1 FROM workspaces WHERE owner_uid = ? AND name = ? "
        "AND state NOT IN ('deleted','failed')");
    query.bind(owner_uid, name(number));
    return query.step();
  };
  if (!is_taken(1)) return wish;
  // Doubles until one is free, then bisects: thirty queries for ten thousand names.
  uint64_t free = 2;
  while (is_taken(free)) free *= 2;
  for (uint64_t taken = free / 2; free - taken > 1;) {
    const uint64_t between = taken + (free - taken) / 2;
    (is_taken(between) ? taken : free) = between;
  }
  return name(free);
}

std::vector<WorkspaceRow> WorkspaceTable::at_rest_after(base::WorkspaceId after, size_t limit) {
  return select(store_, "id > ?1 AND state IN ('ready','archived') ORDER BY id LIMIT ?2",
                after.value, limit);
}

WorkspaceTable::Counts WorkspaceTable::count_by_state() {
  return state_db::count_by_state<WorkspaceState, Counts>(
      store_, "SELECT state, count(*) FROM workspaces WHERE purged_wall_ms IS NULL GROUP BY state");
}

uint64_t WorkspaceTable::count_live() {
  Statement query =
      store_.prepare("SELECT count(*) FROM workspaces WHERE state NOT IN ('deleted','failed')");
  return query.value<uint64_t>().value();
}

// Adds the few archived ones separately, starting from their table (CROSS: SQLite keeps that
// order): the other direction would search for an archive of each row.
WorkspaceTable::Disk WorkspaceTable::disk(const DiskOf& of) {
  const std::string which =
      "w.purged_wall_ms IS NULL AND (?1 IS NULL OR w.owner_uid = ?1) AND "
      "(?2 IS NULL OR w.repository = ?2) AND (?3 IS NULL OR w.owner_uid = ?3 OR "
      "w.team_gid IN (SELECT value FROM json_each(?4)))";
  const std::string archived =
      "FROM archives a CROSS JOIN workspaces w ON w.id = a.workspace WHERE a.whole AND " + which;
  Statement query = store_.prepare(
      "SELECT coalesce(sum(disk_bytes), 0) + "
      "(SELECT coalesce(sum(a.bytes - coalesce(w.disk_bytes, 0)), 0) " +
      archived +
      "), coalesce(sum(disk_files), 0) + (SELECT coalesce(sum(1 - coalesce(w.disk_files, 0)), 0) " +
      archived + ") FROM workspaces w WHERE " + which);
  const Seen seen(of.seen_by);
  query.bind(of.owner_uid, of.repository, seen.uid, seen.gids);
  query.step();
  Disk disk;
  query.read(disk.bytes, disk.files);
  return disk;
}

}  // namespace moorage::state_db
