#include "state_db/migrations.h"

#include <string>

#include "base/error.h"
#include "state_db/connection.h"

namespace moorage::state_db {

namespace {

// PRAGMA application_id, "MOOR": so that another program's file is never migrated.
constexpr int64_t kApplicationId = 0x4d4f4f52;

// The first name stands for schema.sql as of the first store, so it has no SQL.
constexpr Migration kMigrations[] = {
    {"0001-first", ""},
    // Restarts the undo window of already deleted workspaces, which used the wall clock.
    {"0002-store-age",
     "CREATE TABLE store_age (row INTEGER PRIMARY KEY CHECK (row = 1), age_ms INTEGER NOT NULL, "
     "boot_id TEXT NOT NULL, boot_ms INTEGER NOT NULL) STRICT;"
     "ALTER TABLE workspaces ADD COLUMN deleted_age_ms INTEGER;"
     "UPDATE workspaces SET deleted_age_ms = 0 WHERE deleted_wall_ms IS NOT NULL"},
    // Derives categories of finished execs from their rows. No CHECK: new words need no new table.
    {"0003-exec-category",
     "ALTER TABLE execs ADD COLUMN category TEXT NOT NULL DEFAULT '';"
     "UPDATE execs SET category = CASE state WHEN 'timed_out' THEN 'timeout' WHEN 'oom_killed' "
     "THEN 'out_of_memory' WHEN 'cancelled' THEN 'cancelled' WHEN 'signalled' THEN 'signal' WHEN "
     "'interrupted' THEN CASE WHEN reason LIKE 'it was never started%' THEN 'not_started' ELSE "
     "'lost' END ELSE '' END"},
    {"0004-exec-changed-files", "ALTER TABLE execs ADD COLUMN changed_files INTEGER"},
    {"0005-workspaces-kept",
     "CREATE INDEX workspaces_kept ON workspaces (state) WHERE purged_wall_ms IS NULL"},
    // Keeps the result of the last stop; without a seal nothing is compared until the next stop.
    {"0006-workspace-integrity",
     "CREATE TABLE workspace_integrity (workspace INTEGER PRIMARY KEY REFERENCES workspaces (id), "
     "state TEXT NOT NULL CHECK (state IN ('intact','changed-outside','lost')), "
     "reason TEXT NOT NULL DEFAULT '', wall_ms INTEGER NOT NULL, seal TEXT NOT NULL DEFAULT '', "
     "sealed_wall_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
     "INSERT INTO workspace_integrity (workspace, state, reason, wall_ms, sealed_wall_ms) SELECT "
     "id, CASE WHEN integrity LIKE 'lost%' THEN 'lost' ELSE 'intact' END, "
     "CASE WHEN integrity LIKE 'lost: %' THEN substr(integrity, 7) ELSE '' END, created_wall_ms, "
     "created_wall_ms FROM workspaces WHERE integrity <> '' AND purged_wall_ms IS NULL;"
     "ALTER TABLE workspaces DROP COLUMN integrity"},
    {"0007-leases",
     "ALTER TABLE workspaces ADD COLUMN team_gid INTEGER;"
     "CREATE INDEX workspaces_of_team ON workspaces (team_gid) WHERE team_gid IS NOT NULL;"
     "CREATE TABLE leases (workspace INTEGER PRIMARY KEY REFERENCES workspaces (id), "
     "generation INTEGER NOT NULL, holder TEXT NOT NULL, holder_uid INTEGER NOT NULL, "
     "ttl_ms INTEGER NOT NULL, acquired_wall_ms INTEGER NOT NULL, ended TEXT NOT NULL CHECK (ended "
     "IN ('','released','lapsed','deleted')), clearing INTEGER NOT NULL, request_key TEXT) STRICT"},
    {"0008-idle-stop",
     "ALTER TABLE workspaces ADD COLUMN idle_stop_s INTEGER NOT NULL DEFAULT -1;"
     "ALTER TABLE workspaces ADD COLUMN max_lifetime_s INTEGER NOT NULL DEFAULT -1"},
    {"0009-pre-stop",
     "ALTER TABLE workspaces ADD COLUMN pre_stop BLOB NOT NULL DEFAULT x'';"
     "ALTER TABLE workspaces ADD COLUMN pre_stop_deadline_s INTEGER NOT NULL DEFAULT 30;"
     "ALTER TABLE execs ADD COLUMN hook TEXT NOT NULL DEFAULT ''"},
    // Counts earlier commands too: a budget set later covers all of them.
    {"0010-budgets",
     "ALTER TABLE workspaces ADD COLUMN max_exec_s INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE workspaces ADD COLUMN max_execs INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE workspaces ADD COLUMN max_exec_total_s INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE workspaces ADD COLUMN used_execs INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE workspaces ADD COLUMN used_exec_ms INTEGER NOT NULL DEFAULT 0;"
     "UPDATE workspaces SET (used_execs, used_exec_ms) = (SELECT count(*), "
     "coalesce(sum(max(0, ended_wall_ms - started_wall_ms)) FILTER (WHERE ended_wall_ms > 0), 0) "
     "FROM execs WHERE execs.workspace = workspaces.id)"},
    // Idle time starts at this migration.
    {"0011-collection",
     "ALTER TABLE workspaces ADD COLUMN disk_files INTEGER;"
     "ALTER TABLE workspaces ADD COLUMN rest_age_ms INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE workspaces ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE workspaces ADD COLUMN caches BLOB NOT NULL DEFAULT x'';"
     "ALTER TABLE workspaces ADD COLUMN disk_limit_bytes INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE workspaces ADD COLUMN disk_limit_files INTEGER NOT NULL DEFAULT 0;"
     "UPDATE workspaces SET rest_age_ms = coalesce((SELECT age_ms FROM store_age), 0)"},
    {"0012-archives",
     "CREATE TABLE archives (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace INTEGER NOT NULL "
     "UNIQUE REFERENCES workspaces (id), whole INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL "
     "DEFAULT 0, sha256 TEXT NOT NULL DEFAULT '', wall_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
     "ALTER TABLE execs ADD COLUMN imported_from TEXT NOT NULL DEFAULT ''"},
    {"0013-archive-seal", "ALTER TABLE archives ADD COLUMN seal TEXT NOT NULL DEFAULT ''"},
    {"0014-workspaces-left",
     "CREATE INDEX workspaces_left ON workspaces (id) WHERE purged_wall_ms IS NULL"},
    // Drops a table that no verb ever used.
    {"0015-snapshots",
     "CREATE TABLE snapshots (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace INTEGER NOT NULL "
     "REFERENCES workspaces (id), parent INTEGER REFERENCES snapshots (id), "
     "layer INTEGER REFERENCES layers (id), next_layer INTEGER REFERENCES layers (id), "
     "next_on INTEGER REFERENCES snapshots (id), name TEXT NOT NULL, external_id TEXT NOT NULL, "
     "cause TEXT NOT NULL, exec INTEGER REFERENCES execs (id), way TEXT NOT NULL, "
     "pause_us INTEGER NOT NULL DEFAULT 0, durable INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL "
     "CHECK (state IN ('taking','kept','dropped')), reason TEXT NOT NULL DEFAULT '', "
     "created_wall_ms INTEGER NOT NULL, created_age_ms INTEGER NOT NULL, idempotency_key TEXT, "
     "request_hash TEXT NOT NULL DEFAULT '', UNIQUE (workspace, idempotency_key)) STRICT;CREATE "
     "UNIQUE INDEX snapshots_by_name ON snapshots (workspace, name) WHERE name <> '' AND state <> "
     "'dropped';CREATE INDEX snapshots_of_layer ON snapshots (layer) WHERE layer "
     "IS NOT NULL;CREATE INDEX snapshots_of_next_layer ON snapshots (next_layer) WHERE next_layer "
     "IS NOT NULL;ALTER TABLE workspaces ADD COLUMN stands_on INTEGER REFERENCES snapshots "
     "(id);ALTER TABLE workspaces ADD COLUMN forked_from INTEGER REFERENCES snapshots (id);ALTER "
     "TABLE workspaces ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;ALTER TABLE workspaces ADD "
     "COLUMN attempts INTEGER NOT NULL DEFAULT 0;ALTER TABLE workspaces ADD COLUMN "
     "snapshot_before_exec INTEGER NOT NULL DEFAULT 0;ALTER TABLE workspaces ADD COLUMN "
     "snapshot_on_stop INTEGER NOT NULL DEFAULT 0;ALTER TABLE workspaces ADD COLUMN "
     "snapshot_every_s INTEGER NOT NULL DEFAULT 0;DROP TABLE operations;ALTER TABLE events RENAME "
     "COLUMN operation TO snapshot;CREATE INDEX workspaces_of_fork ON workspaces (forked_from) "
     "WHERE forked_from IS NOT NULL;CREATE INDEX snapshots_of_workspace ON snapshots (workspace)"},
    {"0016-base-tree-deltas",
     "ALTER TABLE base_trees ADD COLUMN parent TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE base_trees ADD COLUMN disk_files INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE base_trees ADD COLUMN disk_bytes INTEGER NOT NULL DEFAULT 0;"
     "UPDATE base_trees SET disk_files = files, disk_bytes = bytes"},
    {"0017-best-of",
     "CREATE TABLE best_of (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace INTEGER NOT NULL "
     "REFERENCES workspaces (id), owner_uid INTEGER NOT NULL, owner_gids TEXT NOT NULL, "
     "lease INTEGER, each_command BLOB NOT NULL, test_command BLOB NOT NULL, patch_bytes INTEGER "
     "NOT NULL, timeout_ms INTEGER NOT NULL, promote TEXT NOT NULL CHECK (promote IN "
     "('','first-passing','smallest-diff')), parallel INTEGER NOT NULL, keep INTEGER NOT NULL, "
     "state TEXT NOT NULL CHECK (state IN ('preparing','running','done','cancelled','failed')), "
     "reason TEXT NOT NULL DEFAULT '', cancel_requested INTEGER NOT NULL DEFAULT 0, "
     "chosen INTEGER NOT NULL DEFAULT 0, promotion TEXT NOT NULL DEFAULT '' CHECK "
     "(promotion IN ('','done','refused')), promotion_note TEXT NOT NULL DEFAULT '', "
     "created_wall_ms INTEGER NOT NULL, ended_wall_ms INTEGER NOT NULL DEFAULT 0, "
     "idempotency_key TEXT, request_hash TEXT NOT NULL, UNIQUE (owner_uid, idempotency_key)) "
     "STRICT;CREATE INDEX best_of_of_workspace ON best_of (workspace);CREATE INDEX best_of_open ON "
     "best_of (id) WHERE state IN ('preparing','running');CREATE TABLE best_of_attempts "
     "(id INTEGER PRIMARY KEY AUTOINCREMENT, best_of INTEGER NOT NULL REFERENCES best_of (id), "
     "number INTEGER NOT NULL, workspace INTEGER REFERENCES workspaces (id), label TEXT NOT NULL, "
     "patch_offset INTEGER NOT NULL, patch_bytes INTEGER NOT NULL, state TEXT NOT NULL CHECK "
     "(state IN ('waiting','applying','testing','passed','failed','interrupted','cancelled')), "
     "reason TEXT NOT NULL DEFAULT '', each_exec INTEGER REFERENCES execs (id), "
     "test_exec INTEGER REFERENCES execs (id), measured INTEGER NOT NULL DEFAULT 0, "
     "diff_files INTEGER NOT NULL DEFAULT 0, diff_added INTEGER NOT NULL DEFAULT 0, "
     "diff_removed INTEGER NOT NULL DEFAULT 0, diff_bytes INTEGER NOT NULL DEFAULT 0, "
     "tail BLOB NOT NULL DEFAULT x'', started_wall_ms INTEGER NOT NULL DEFAULT 0, "
     "ended_wall_ms INTEGER NOT NULL DEFAULT 0, UNIQUE (best_of, number)) STRICT;CREATE INDEX "
     "best_of_attempts_of_workspace ON best_of_attempts (workspace) WHERE workspace IS NOT NULL"},
    {"0018-merged-layers",
     "ALTER TABLE layers ADD COLUMN instead_of INTEGER REFERENCES layers (id);"
     "ALTER TABLE layers ADD COLUMN mounted_upto INTEGER"},
    {"0019-moves",
     "ALTER TABLE workspaces ADD COLUMN runtime TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE sandboxes ADD COLUMN runtime TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE sandboxes ADD COLUMN isolation TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE sandboxes ADD COLUMN first_host_id INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE sandboxes ADD COLUMN standby INTEGER NOT NULL DEFAULT 0;"
     "DROP INDEX sandboxes_live;"
     "CREATE UNIQUE INDEX sandboxes_live ON sandboxes (workspace) WHERE state NOT IN "
     "('stopped','destroyed') AND standby = 0"},
    // Keeps earlier answers a day longer, as their age was based on the wall clock.
    {"0020-final-answers",
     "DROP INDEX idempotency_keys_by_age;"
     "ALTER TABLE idempotency_keys RENAME COLUMN wall_ms TO age_ms;"
     "ALTER TABLE idempotency_keys ADD COLUMN headers TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE idempotency_keys ADD COLUMN subject TEXT NOT NULL DEFAULT '';"
     "UPDATE idempotency_keys SET age_ms = coalesce((SELECT age_ms FROM store_age), 0);"
     "UPDATE workspaces SET idempotency_key = NULL WHERE state = 'failed';"
     "CREATE INDEX idempotency_keys_by_age ON idempotency_keys (age_ms)"},
    // Earlier leases have no secret: they lapse unless released or taken over.
    {"0021-lease-secrets",
     "ALTER TABLE leases ADD COLUMN secret_hash TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE best_of ADD COLUMN lease_secret_hash TEXT NOT NULL DEFAULT ''"},
    // Earlier archives do not list their other layers, so those stay hot.
    {"0022-cold-layers",
     "ALTER TABLE layers ADD COLUMN cold INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE layers ADD COLUMN disk_bytes INTEGER;"
     "CREATE TABLE archive_layers (archive INTEGER NOT NULL REFERENCES archives (id), "
     "layer INTEGER NOT NULL, PRIMARY KEY (archive, layer)) STRICT, WITHOUT ROWID"},
    {"0023-layer-disk",
     "ALTER TABLE layers ADD COLUMN disk_files INTEGER;"
     "ALTER TABLE layers ADD COLUMN measured INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE layers ADD COLUMN kin INTEGER;"
     "ALTER TABLE workspaces ADD COLUMN journal_bytes INTEGER NOT NULL DEFAULT 0;"
     "CREATE INDEX layers_of_kin ON layers (kin) WHERE kin IS NOT NULL;"
     "UPDATE layers SET disk_bytes = (SELECT disk_bytes FROM workspaces WHERE "
     "workspaces.layer = layers.id), disk_files = (SELECT disk_files FROM workspaces WHERE "
     "workspaces.layer = layers.id) WHERE NOT frozen"},
    // Drops the CHECK: new words need no new table.
    {"0024-integrity-words",
     "CREATE TABLE integrity_words (workspace INTEGER PRIMARY KEY REFERENCES workspaces (id), "
     "state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', wall_ms INTEGER NOT NULL, "
     "seal TEXT NOT NULL DEFAULT '', sealed_wall_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
     "INSERT INTO integrity_words SELECT workspace, state, reason, wall_ms, seal, "
     "sealed_wall_ms FROM workspace_integrity;"
     "DROP TABLE workspace_integrity;"
     "ALTER TABLE integrity_words RENAME TO workspace_integrity"},
    {"0025-fork-of", "ALTER TABLE workspaces ADD COLUMN fork_of TEXT NOT NULL DEFAULT ''"},
    {"0026-sent-signals",
     "ALTER TABLE execs ADD COLUMN sent_signal INTEGER;"
     "ALTER TABLE execs ADD COLUMN sent_by TEXT NOT NULL DEFAULT ''"},
    {"0027-network",
     "ALTER TABLE workspaces ADD COLUMN network TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE workspaces ADD COLUMN network_rules BLOB NOT NULL DEFAULT x''"},
    {"0028-credentials",
     "CREATE TABLE credentials (owner_uid INTEGER NOT NULL, name TEXT NOT NULL, form TEXT NOT "
     "NULL, "
     "urls BLOB NOT NULL, methods BLOB NOT NULL, labels BLOB NOT NULL, variable TEXT NOT NULL, "
     "source TEXT NOT NULL, place TEXT NOT NULL, created_wall_ms INTEGER NOT NULL, "
     "PRIMARY KEY (owner_uid, name)) STRICT, WITHOUT ROWID"},
    {"0029-approvals",
     "ALTER TABLE workspaces ADD COLUMN push TEXT NOT NULL DEFAULT 'ask';"
     "ALTER TABLE workspaces ADD COLUMN push_refs BLOB NOT NULL DEFAULT x'';"
     "CREATE TABLE approvals (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace INTEGER NOT "
     "NULL REFERENCES workspaces (id), repository TEXT NOT NULL, ref TEXT NOT NULL, "
     "old_id TEXT NOT NULL, new_id TEXT NOT NULL, commits INTEGER, title TEXT NOT NULL, "
     "state TEXT NOT NULL CHECK (state IN "
     "('waiting','approved','used','refused','expired')), reason TEXT NOT NULL DEFAULT "
     "'', asked_wall_ms INTEGER NOT NULL, asked_age_ms INTEGER NOT NULL, decided_uid "
     "INTEGER, decided_wall_ms INTEGER NOT NULL DEFAULT 0, used_wall_ms INTEGER NOT NULL "
     "DEFAULT 0) STRICT;CREATE INDEX "
     "approvals_of_workspace ON approvals (workspace, id);CREATE INDEX approvals_open ON "
     "approvals (workspace) WHERE state IN ('waiting','approved')"},
    {"0030-head-commit",
     "ALTER TABLE workspaces ADD COLUMN head_commit TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE workspaces ADD COLUMN raw_commit TEXT NOT NULL DEFAULT ''"},
    {"0032-streams",
     "ALTER TABLE execs ADD COLUMN merged INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE execs ADD COLUMN input_read INTEGER"},
    {"0033-moved-commit",
     "ALTER TABLE workspaces ADD COLUMN moved_commit TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE snapshots ADD COLUMN moved_commit TEXT NOT NULL DEFAULT ''"},
};

class Rollback {
 public:
  explicit Rollback(Connection& connection) : connection_(connection) {}
  ~Rollback() {
    if (!connection_.in_transaction()) return;
    try {
      connection_.execute("ROLLBACK");
    } catch (const Error&) {
      // The file keeps the commits so far; closing the connection rolls back as well.
    }
  }
  Rollback(Rollback&&) = delete;

 private:
  Connection& connection_;
};

void record(Connection& connection, std::string_view name, int64_t wall_ms) {
  connection.execute("INSERT INTO migrations (name, by_version, wall_ms) VALUES (" + quoted(name) +
                     ", " + quoted(MOORAGE_VERSION) + ", " + std::to_string(wall_ms) + ")");
}

bool is_empty(Connection& connection) {
  return connection.query_integer("SELECT count(*) FROM sqlite_schema") == 0;
}

bool is_applied(Connection& connection, std::string_view name) {
  return connection.query_integer("SELECT count(*) FROM migrations WHERE name = " + quoted(name)) >
         0;
}

void refuse_newer(Connection& connection, const SchemaSource& source) {
  std::string known;
  for (const Migration& migration : source.migrations)
    known += (known.empty() ? "" : ",") + quoted(migration.name);
  const std::string unknown =
      " FROM migrations WHERE name NOT IN (" + known + ") ORDER BY name DESC LIMIT 1";
  const std::string name = connection.query_text("SELECT name" + unknown);
  if (name.empty()) return;
  const std::string version = connection.query_text("SELECT by_version" + unknown);
  throw Error(
      Code::unsupported,
      "state.db was written by a newer version (moorage " + version + ", migration " + name +
          "); this is " MOORAGE_VERSION,
      "Install moorage " + version + " or newer; nothing was changed; sandboxes keep running.");
}

// In one transaction, with the names of the migrations that the SQL stands for.
void apply(Connection& connection, const std::string& sql, std::span<const Migration> migrations,
           int64_t wall_ms) {
  Rollback rollback(connection);
  connection.execute("BEGIN IMMEDIATE");
  connection.execute(sql);
  for (const Migration& migration : migrations) record(connection, migration.name, wall_ms);
  const std::string table = connection.query_text("PRAGMA foreign_key_check");
  if (!table.empty()) {
    throw Error(Code::corrupted, "migration " + std::string(migrations.back().name) +
                                     " of state.db would leave broken references in " + table);
  }
  connection.execute("COMMIT");
}

}  // namespace

SchemaSource present_schema() { return {kSchema, kMigrations}; }

void refuse_unknown(Connection& connection, const SchemaSource& source) {
  if (is_empty(connection)) return;
  if (connection.query_integer("PRAGMA application_id") != kApplicationId) {
    throw Error(Code::unsupported, "state.db is not a moorage database",
                "Choose another store directory, or move the file away.");
  }
  refuse_newer(connection, source);
}

void bring_up(Connection& connection, const SchemaSource& source, int64_t wall_ms) {
  refuse_unknown(connection, source);
  const bool empty = is_empty(connection);
  // Neither setting can change inside a transaction. Foreign keys are off while tables are rebuilt.
  connection.execute("PRAGMA foreign_keys = OFF; PRAGMA synchronous = FULL");
  connection.query_text("PRAGMA journal_mode = WAL");
  if (empty) {
    apply(
        connection,
        std::string(source.schema) + "; PRAGMA application_id = " + std::to_string(kApplicationId),
        source.migrations, wall_ms);
  } else {
    for (const Migration& migration : source.migrations) {
      if (!is_applied(connection, migration.name))
        apply(connection, std::string(migration.sql), {&migration, 1}, wall_ms);
    }
  }
  connection.execute("PRAGMA foreign_keys = ON");
}

}  // namespace moorage::state_db
