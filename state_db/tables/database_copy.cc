#include "state_db/tables/database_copy.h"

#include <SQLiteCpp/Backup.h>
#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>
#include <sqlite3.h>

#include "base/digest.h"
#include "base/error.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/sandboxes.h"

namespace moorage::state_db {
namespace {

constexpr int kBusy_ms = 5'000;
constexpr const char* kEpoch = "replica_epoch";

// A writable layer is complete while its workspace is in one of these states: a verb that takes it
// away first changes the row. A workspace in `creating` was never acknowledged.
constexpr const char* kWritable =
    "SELECT w.layer, 0, w.state = 'deleted', coalesce(i.seal, ''), w.id FROM workspaces w "
    "LEFT JOIN workspace_integrity i ON i.workspace = w.id "
    "WHERE w.layer IS NOT NULL AND w.purge_wall_ms IS NULL "
    "AND w.state IN ('ready', 'archiving', 'deleting', 'deleted') "
    "AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.workspace = w.id AND a.whole = 1)";

// The layers replaced by a merge (instead_of) only matter to mounts.
constexpr const char* kFrozen =
    "WITH RECURSIVE used (layer) AS ("
    "SELECT l.parent FROM workspaces w JOIN layers l ON l.id = w.layer "
    "WHERE l.parent IS NOT NULL AND w.purge_wall_ms IS NULL AND w.state <> 'failed' "
    "UNION SELECT layer FROM snapshots WHERE layer IS NOT NULL AND state = 'kept' "
    "UNION SELECT l.parent FROM layers l JOIN used ON l.id = used.layer "
    "WHERE l.parent IS NOT NULL) "
    "SELECT l.id, l.frozen, 0, '', 0 FROM used JOIN layers l ON l.id = used.layer "
    "WHERE l.cold = 0 AND (l.frozen = 1 "  // cold layers are in archives
    "OR l.id NOT IN (SELECT layer FROM workspaces WHERE layer IS NOT NULL)) ORDER BY l.id";

constexpr const char* kHistories =
    "SELECT w.id, coalesce(e.running, 0), coalesce(e.last, 0), coalesce(e.ended, 0), "
    "coalesce((SELECT max(b.id) FROM best_of b WHERE b.workspace = w.id), 0) FROM workspaces w "
    "LEFT JOIN (SELECT workspace, max(id) AS last, sum(state = 'running') AS running, "
    "max(ended_wall_ms) AS ended FROM execs GROUP BY workspace) e ON e.workspace = w.id "
    "WHERE w.purge_wall_ms IS NULL AND w.state <> 'failed'";

constexpr const char* kRepositories =
    "SELECT id FROM repositories WHERE state <> 'evicted' "
    "AND id IN (SELECT repository FROM layers "
    "UNION SELECT repository FROM workspaces WHERE purge_wall_ms IS NULL)";

// A layer and all layers above it.
constexpr const char* kAbove =
    "WITH RECURSIVE above (layer) AS (SELECT ? UNION "
    "SELECT layers.id FROM layers JOIN above ON layers.parent = above.layer) ";

[[noreturn]] void rethrow(const SQLite::Exception& error, const std::string& what) {
  const int code = error.getErrorCode();
  const bool full = code == SQLITE_FULL || code == SQLITE_NOMEM;
  const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
  throw Error(full      ? Code::resource_exhausted
              : damaged ? Code::corrupted
                        : Code::io,
              what + ": " + error.what());
}

template <typename Work>
auto guarded(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const SQLite::Exception& error) {
    rethrow(error, what);
  }
}

template <typename Id>
Id id_of(const SQLite::Column& column) {
  return Id{column.getInt64()};
}

void read_layers(SQLite::Database& database, const char* sql, std::vector<NeededLayer>& layers) {
  SQLite::Statement query(database, sql);
  while (query.executeStep()) {
    layers.push_back({id_of<base::LayerId>(query.getColumn(0)), query.getColumn(1).getInt() != 0,
                      query.getColumn(2).getInt() != 0, query.getColumn(3).getString(),
                      id_of<base::WorkspaceId>(query.getColumn(4))});
  }
}

std::string meta(SQLite::Database& database, const char* name) {
  SQLite::Statement query(database, "SELECT value FROM meta WHERE name = ?");
  query.bind(1, name);
  return query.executeStep() ? query.getColumn(0).getString() : std::string();
}

Needs read_needs(SQLite::Database& database) {
  Needs needs;
  needs.store_id = meta(database, "store_id");
  needs.epoch = meta(database, kEpoch);
  if (needs.epoch.empty()) needs.epoch = "0";
  read_layers(database, kWritable, needs.layers);
  read_layers(database, kFrozen, needs.layers);
  SQLite::Statement histories(database, kHistories);
  while (histories.executeStep()) {
    NeededHistory history{id_of<base::WorkspaceId>(histories.getColumn(0)), {}};
    if (histories.getColumn(1).getInt64() == 0) {
      for (int column = 2; column <= 4; ++column)
        history.stamp += histories.getColumn(column).getString() + ".";
    }
    needs.histories.push_back(std::move(history));
  }
  SQLite::Statement repositories(database, kRepositories);
  while (repositories.executeStep())
    needs.repositories.push_back(id_of<base::RepoId>(repositories.getColumn(0)));
  SQLite::Statement archives(database,
                             "SELECT workspace, id, bytes, sha256 FROM archives WHERE whole = 1");
  while (archives.executeStep()) {
    const auto workspace = id_of<base::WorkspaceId>(archives.getColumn(0));
    needs.archives.push_back(
        {workspace, archive_file_name(needs.store_id, workspace, archives.getColumn(1).getInt64()),
         static_cast<uint64_t>(archives.getColumn(2).getInt64()),
         archives.getColumn(3).getString()});
  }
  return needs;
}

}  // namespace

DatabaseCopy::DatabaseCopy(const std::string& store_directory) {
  const std::string path = store_directory + "/state.db";
  guarded("copy " + path, [&] {
    SQLite::Database source(path, SQLite::OPEN_READONLY, kBusy_ms);
    copy_ = std::make_unique<SQLite::Database>("copy", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE,
                                               0, "memdb");
    SQLite::Backup(*copy_, source).executeStep(-1);
    sqlite3_int64 size = 0;
    unsigned char* const bytes =
        sqlite3_serialize(copy_->getHandle(), "main", &size, SQLITE_SERIALIZE_NOCOPY);
    constexpr sqlite3_int64 kHeadBytes = 100;
    if (!bytes || size < kHeadBytes) throw Error(Code::internal, "the copy is empty: " + path);
    // Clear the marks of a WAL database, as a copy has no log (bytes 18 and 19 of the format).
    bytes[18] = bytes[19] = 1;
    bytes_ = {reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)};
    // Use another connection, as the first one has cached those bytes.
    SQLite::Database asked(":memory:", SQLite::OPEN_READWRITE);
    asked.exec("SELECT 1");
    if (sqlite3_deserialize(asked.getHandle(), "main", bytes, size, size,
                            SQLITE_DESERIALIZE_READONLY) != SQLITE_OK) {
      throw Error(Code::internal, "cannot copy " + path + ": the copy is unreadable");
    }
    needs_ = read_needs(asked);
  });
}

DatabaseCopy::~DatabaseCopy() = default;

CopiedDatabase::CopiedDatabase(const std::string& path) {
  guarded("the copy of state.db", [&] {
    database_ = std::make_unique<SQLite::Database>(path, SQLite::OPEN_READWRITE, kBusy_ms);
    SQLite::Statement check(*database_, "PRAGMA integrity_check(1)");
    const std::string answer = check.executeStep() ? check.getColumn(0).getString() : "no answer";
    if (answer != "ok") throw Error(Code::corrupted, "the copy of state.db is damaged: " + answer);
  });
}

CopiedDatabase::~CopiedDatabase() = default;

Needs CopiedDatabase::needs() {
  return guarded("the copy of state.db", [&] { return read_needs(*database_); });
}

std::vector<std::string> CopiedDatabase::names_on(base::LayerId layer) {
  return guarded("the copy of state.db", [&] {
    SQLite::Statement query(
        *database_,
        std::string(kAbove) +
            "SELECT w.name || ' (ws_' || w.id || ')' FROM workspaces w "
            "JOIN above ON w.layer = above.layer WHERE w.purge_wall_ms IS NULL "
            "UNION ALL SELECT 'snapshot sn_' || s.id || ' of ' || w.name FROM snapshots s "
            "JOIN above ON s.layer = above.layer JOIN workspaces w ON w.id = s.workspace "
            "WHERE s.state = 'kept'");
    query.bind(1, layer.value);
    std::vector<std::string> names;
    while (query.executeStep()) names.push_back(query.getColumn(0).getString());
    return names;
  });
}

std::string CopiedDatabase::name_of(base::WorkspaceId workspace) {
  return guarded("the copy of state.db", [&] {
    SQLite::Statement query(*database_, "SELECT name FROM workspaces WHERE id = ?");
    query.bind(1, workspace.value);
    const std::string name = query.executeStep() ? query.getColumn(0).getString() : "?";
    return name + " (" + workspace.str() + ")";
  });
}

void CopiedDatabase::mark_lost(base::LayerId layer, const std::string& why, int64_t wall_ms) {
  guarded("the copy of state.db", [&] {
    // The time of the seal prevents automatic rebuilding: it shows that there was work in it.
    SQLite::Statement change(
        *database_, std::string(kAbove) +
                        "INSERT OR REPLACE INTO workspace_integrity "
                        "(workspace, state, reason, wall_ms, seal, sealed_wall_ms) "
                        "SELECT w.id, 'lost', ?, ?, '', ? FROM workspaces w "
                        "JOIN above ON w.layer = above.layer WHERE w.purge_wall_ms IS NULL");
    SQLite::bind(change, layer.value, why, wall_ms, wall_ms);
    change.exec();
  });
}

void CopiedDatabase::settle() {
  guarded("the copy of state.db", [&] {
    SQLite::Transaction transaction(*database_);
    // A seal contains times and inode numbers, which differ in the restored files. No boot has this
    // id, so nothing counts as running; base trees come from the mirrors; everything is synced.
    database_->exec(
        "UPDATE workspace_integrity SET seal = '';"
        "DELETE FROM base_trees;"
        "UPDATE snapshots SET durable = 1 WHERE state = 'kept';"
        "UPDATE meta SET value = '0' WHERE name = 'clean'");
    SQLite::Statement boot(
        *database_, "UPDATE sandboxes SET boot_id = ?, init_pid = 0 WHERE state <> 'destroyed'");
    boot.bind(1, kBootOfCopy);
    boot.exec();
    SQLite::Statement epoch(*database_, "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)");
    SQLite::bind(epoch, kEpoch, base::random_hex(8));
    epoch.exec();
    transaction.commit();
  });
}

}  // namespace moorage::state_db
