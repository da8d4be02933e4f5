-- The schema of a new store. An older database gets the same shape through the named migrations of
-- migrations.cc; a test compares the two. Times are wall clock milliseconds since 1970 UTC, sizes are
-- bytes. State names are those of lifecycle.h. Tables are STRICT: SQLite refuses values of a wrong type.

CREATE TABLE meta (              -- Single facts about the store itself.
  name  TEXT PRIMARY KEY,        -- store_id: 8 hex digits; clean: 1 if the last owner closed it properly.
  value TEXT NOT NULL            -- The fact, as text.
) STRICT, WITHOUT ROWID;

CREATE TABLE store_age (         -- One row: how long the host has been up while it had this store (store_age.h).
  row     INTEGER PRIMARY KEY CHECK (row = 1),  -- Always 1.
  age_ms  INTEGER NOT NULL,      -- The age when it was last saved.
  boot_id TEXT NOT NULL,         -- Boot of that save.
  boot_ms INTEGER NOT NULL       -- CLOCK_BOOTTIME at that save.
) STRICT;

CREATE TABLE migrations (        -- Migrations applied to this database; an unknown name means a newer program.
  name       TEXT PRIMARY KEY,   -- Name in migrations.cc.
  by_version TEXT NOT NULL,      -- Version of the program that applied it.
  wall_ms    INTEGER NOT NULL    -- When it was applied.
) STRICT, WITHOUT ROWID;

CREATE TABLE events (            -- The event log, for followers and for people; the oldest are trimmed.
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,  -- Order of commits; never reused.
  wall_ms    INTEGER NOT NULL,   -- When it was written.
  kind       TEXT NOT NULL,      -- "workspace.state" and the like for moves; free for others.
  repository INTEGER,            -- Its repository, if any; no reference: events outlive rows.
  workspace  INTEGER,            -- Its workspace, also for events of a sandbox or exec.
  sandbox    INTEGER,            -- Its sandbox, if any.
  exec       INTEGER,            -- Its exec, if any.
  snapshot   INTEGER,            -- Its snapshot, if any.
  from_state TEXT NOT NULL,      -- State before a move; empty for a new row and for other events.
  to_state   TEXT NOT NULL,      -- State after a move; empty for other events.
  text       TEXT NOT NULL       -- Reason, for people.
) STRICT;
CREATE INDEX events_of_workspace ON events (workspace, seq) WHERE workspace IS NOT NULL;

CREATE TABLE repositories (      -- Upstream repositories, each cached as one bare mirror.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- repo_N; names its directory.
  url             TEXT NOT NULL, -- Normalized URL without credentials: identifies the repository.
  fetch_url       TEXT NOT NULL, -- The URL in upstream's spelling ("x.git"); for a local import the same as url.
  scope           TEXT NOT NULL, -- Credential scope: who may share the mirror; empty is public.
  name            TEXT NOT NULL, -- "owner/name", for people; not unique.
  state           TEXT NOT NULL CHECK (state IN ('cloning','ready','fetching','broken','evicted')),  -- Life cycle.
  reason          TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  default_branch  TEXT NOT NULL DEFAULT '',  -- Upstream's HEAD at the last contact.
  fetched_wall_ms INTEGER NOT NULL DEFAULT 0,  -- When objects last arrived; 0: never.
  checked_wall_ms INTEGER NOT NULL DEFAULT 0,  -- When upstream last answered; 0: never.
  stale_reason    TEXT NOT NULL DEFAULT '',  -- Why the last check failed; empty if it succeeded.
  bytes           INTEGER NOT NULL DEFAULT 0,  -- Size of the mirror on disk.
  created_wall_ms INTEGER NOT NULL,  -- When the row was made.
  UNIQUE (url, scope)
) STRICT;

CREATE TABLE base_trees (        -- Immutable checkouts of one commit, shared by workspaces; a row is written after its tree.
  repository        INTEGER NOT NULL REFERENCES repositories (id),  -- Repository of the commit.
  commit_id         TEXT NOT NULL,     -- 40 hex digits; names its directory.
  files             INTEGER NOT NULL,  -- Number of files and links.
  bytes             INTEGER NOT NULL,  -- Sum of their sizes.
  submodules        INTEGER NOT NULL,  -- Number of gitlinks, left as empty directories.
  lfs_files         INTEGER NOT NULL,  -- Number of LFS pointers, left unresolved.
  synced            INTEGER NOT NULL,  -- 1 if it survives a power cut.
  boot_id           TEXT NOT NULL,     -- Boot in which it was written; rebuild an unsynced tree of another boot.
  created_wall_ms   INTEGER NOT NULL,  -- When it was written.
  last_used_wall_ms INTEGER NOT NULL,  -- When a workspace last started from it.
  parent            TEXT NOT NULL DEFAULT '',  -- Commit whose tree must stay: this is a delta over it, or was, and mounts may still use it; empty: none.
  disk_files        INTEGER NOT NULL DEFAULT 0,  -- Number of its own files.
  disk_bytes        INTEGER NOT NULL DEFAULT 0,  -- Sum of their sizes.
  PRIMARY KEY (repository, commit_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE layers (            -- Changes over a base tree or over a parent layer.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- ly_N; names its directory.
  parent          INTEGER REFERENCES layers (id),  -- The frozen layer below; none: directly on the base tree.
  repository      INTEGER NOT NULL REFERENCES repositories (id),  -- Repository of the base tree at the bottom.
  base_commit     TEXT NOT NULL, -- Commit of that base tree, 40 hex digits.
  frozen          INTEGER NOT NULL DEFAULT 0,  -- 1 if it never changes again.
  created_wall_ms INTEGER NOT NULL,  -- When the row was made.
  instead_of      INTEGER REFERENCES layers (id),  -- For a merge: the layer it replaced, while that may be mounted.
  mounted_upto    INTEGER,       -- For a merge: mounts of writable layers up to this id may predate it.
  cold            INTEGER NOT NULL DEFAULT 0,  -- 1: all its users are archived; their archives contain it, and its directory may be incomplete.
  disk_bytes      INTEGER,       -- Disk use when last measured; null: never.
  disk_files      INTEGER,       -- Its inodes, when last measured.
  measured        INTEGER NOT NULL DEFAULT 0,  -- 1 if measured since the freeze and the last change of its kin.
  kin             INTEGER        -- Number shared by layers with common files; null: none.
) STRICT;
CREATE INDEX layers_of_parent ON layers (parent) WHERE parent IS NOT NULL;
CREATE INDEX layers_of_base ON layers (repository, base_commit);
CREATE INDEX layers_of_kin ON layers (kin) WHERE kin IS NOT NULL;

CREATE TABLE workspaces (        -- The durable objects that tasks work in.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- ws_N.
  name            TEXT NOT NULL, -- Name for people; unique among the owner's live ones.
  owner_uid       INTEGER NOT NULL,  -- Host uid of the caller who made it.
  team_gid        INTEGER,       -- Host group whose members may use it too; null: private.
  repository      INTEGER NOT NULL REFERENCES repositories (id),  -- Repository of its base commit.
  base_ref        TEXT NOT NULL, -- Requested ref; empty: the default branch.
  base_commit     TEXT NOT NULL, -- Commit of that ref at creation, 40 hex digits.
  branch          TEXT NOT NULL, -- The agent's branch.
  layer           INTEGER REFERENCES layers (id),  -- The writable layer; null after the purge.
  backend         TEXT NOT NULL, -- Backend of its sandboxes.
  image           TEXT NOT NULL, -- Image of its sandboxes.
  memory_bytes    INTEGER NOT NULL,  -- Limit of its sandboxes.
  cpus            REAL NOT NULL, -- Limit of its sandboxes, in CPUs.
  pids            INTEGER NOT NULL,  -- Limit of its sandboxes, in processes.
  idle_stop_s     INTEGER NOT NULL DEFAULT -1,  -- Stop an idle sandbox after this; 0: never, -1: as configured.
  max_lifetime_s  INTEGER NOT NULL DEFAULT -1,  -- Stop any sandbox after this; 0: never, -1: as configured.
  pre_stop        BLOB NOT NULL DEFAULT x'',  -- Command before a sandbox stops: each word followed by NUL; empty: none.
  pre_stop_deadline_s INTEGER NOT NULL DEFAULT 30,  -- Time limit of that command.
  max_exec_s      INTEGER NOT NULL DEFAULT 0,  -- Longest command; 0: no limit, as in the next two.
  max_execs       INTEGER NOT NULL DEFAULT 0,  -- Limit of the number of commands.
  max_exec_total_s INTEGER NOT NULL DEFAULT 0,  -- Limit of the wall time of all commands together.
  used_execs      INTEGER NOT NULL DEFAULT 0,  -- Number of commands so far; pre_stop does not count.
  used_exec_ms    INTEGER NOT NULL DEFAULT 0,  -- Wall time of finished commands.
  state           TEXT NOT NULL CHECK (state IN ('creating','ready','archiving','archived','unarchiving',
                                                 'deleting','deleted','failed')),  -- Life cycle.
  reason          TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  disposable      INTEGER NOT NULL,  -- 1 if it is deleted after its first exec (run --rm).
  changes_files   INTEGER,       -- Changed files when last counted; null: never.
  changes_wall_ms INTEGER NOT NULL DEFAULT 0,  -- When they were counted.
  unpushed        INTEGER,       -- Commits missing upstream, when last counted.
  disk_bytes      INTEGER,       -- Disk use of its own layers and its journals, when last measured (layer_disk.h).
  created_wall_ms INTEGER NOT NULL,  -- When the row was made.
  deleted_wall_ms INTEGER,       -- When it became a tombstone, for people; undelete clears it.
  deleted_age_ms  INTEGER,       -- The store's age then: start of the undo window.
  purge_wall_ms   INTEGER,       -- When the removal of its files began: undelete is impossible.
  purged_wall_ms  INTEGER,       -- When the removal ended; the row stays as history.
  idempotency_key TEXT,          -- Key of the request that made it.
  request_hash    TEXT NOT NULL, -- Hash of that request, to distinguish a retry from a conflict.
  disk_files      INTEGER,       -- Inodes of its own layers, when last measured.
  rest_age_ms     INTEGER NOT NULL DEFAULT 0,  -- The store's age at its creation or last stop: start of its idle time.
  pinned          INTEGER NOT NULL DEFAULT 0,  -- 1 if exempt from collection, even on a full disk.
  caches          BLOB NOT NULL DEFAULT x'',   -- Inside paths that may be removed when idle: each followed by NUL.
  disk_limit_bytes INTEGER NOT NULL DEFAULT 0, -- Limit of its layers; 0: none.
  disk_limit_files INTEGER NOT NULL DEFAULT 0, -- Limit of their inodes; 0: none.
  stands_on       INTEGER REFERENCES snapshots (id),  -- The last one taken of it or restored; null: its base commit.
  forked_from     INTEGER REFERENCES snapshots (id),  -- Origin of a fork.
  attempt         INTEGER NOT NULL DEFAULT 0,  -- Number among forks made together, from 1; 0: made alone.
  attempts        INTEGER NOT NULL DEFAULT 0,  -- How many were made together.
  snapshot_before_exec INTEGER NOT NULL DEFAULT 0,  -- 1: take one before each command.
  snapshot_on_stop INTEGER NOT NULL DEFAULT 0,  -- 1: take one whenever its sandbox stops.
  snapshot_every_s INTEGER NOT NULL DEFAULT 0,  -- Interval while it runs and works; 0: never.
  runtime         TEXT NOT NULL DEFAULT '',  -- Runtime of its sandboxes, by its name in the engine; empty: the default.
  journal_bytes   INTEGER NOT NULL DEFAULT 0,  -- Share of the journals (records and output of its commands) in disk_bytes.
  fork_of         TEXT NOT NULL DEFAULT '',  -- "STORE_ID/ws_N/sn_N/NAME": origin of an imported fork; empty: not an imported fork.
  network         TEXT NOT NULL DEFAULT '',  -- none, or the name of a preset; empty: as configured.
  network_rules   BLOB NOT NULL DEFAULT x'',  -- Its own rules, like "allow github.com:22": each followed by NUL.
  push            TEXT NOT NULL DEFAULT 'ask',  -- Pushes of git, where TLS ends outside: refuse, ask, allow.
  push_refs       BLOB NOT NULL DEFAULT x'',  -- Patterns of refs that may be pushed: each followed by NUL; none: refs/heads/*.
  head_commit     TEXT NOT NULL DEFAULT '',  -- Where its branch began, if base_commit holds uncommitted work over it.
  raw_commit      TEXT NOT NULL DEFAULT '',  -- The files of base_commit as they were on disk, if a checkout gives others.
  moved_commit    TEXT NOT NULL DEFAULT '',  -- Newer commit of upstream that a rebase or merge inside brought in: changes are counted from it; empty: base_commit.
  UNIQUE (owner_uid, idempotency_key)
) STRICT;
CREATE UNIQUE INDEX workspaces_live_name ON workspaces (owner_uid, name) WHERE state NOT IN ('deleted','failed');
CREATE INDEX workspaces_kept ON workspaces (state) WHERE purged_wall_ms IS NULL;
CREATE INDEX workspaces_left ON workspaces (id) WHERE purged_wall_ms IS NULL;
CREATE INDEX workspaces_of_layer ON workspaces (layer) WHERE layer IS NOT NULL;
CREATE INDEX workspaces_of_fork ON workspaces (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX workspaces_of_team ON workspaces (team_gid) WHERE team_gid IS NOT NULL;

CREATE TABLE workspace_integrity (  -- Whether a workspace changed since its seal; no row: never checked.
  workspace      INTEGER PRIMARY KEY REFERENCES workspaces (id),  -- The workspace.
  state          TEXT NOT NULL,  -- The last result: a word of IntegrityState.
  reason         TEXT NOT NULL DEFAULT '',  -- Why, for people; may be empty.
  wall_ms        INTEGER NOT NULL,  -- When it was last checked.
  seal           TEXT NOT NULL DEFAULT '',  -- Hash of its idle layer (layer_seal.h); empty while the daemon may write there.
  sealed_wall_ms INTEGER NOT NULL DEFAULT 0  -- When a seal was last taken; 0: never.
) STRICT;

CREATE TABLE workspace_labels (  -- Labels that callers attach to a workspace: task, user, conversation.
  workspace INTEGER NOT NULL REFERENCES workspaces (id),  -- The workspace.
  name      TEXT NOT NULL,       -- Its key.
  value     TEXT NOT NULL,       -- Its value.
  PRIMARY KEY (workspace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE credentials (       -- Credentials for hosts; never their secrets.
  owner_uid       INTEGER NOT NULL,  -- The user whose workspaces may use it.
  name            TEXT NOT NULL,     -- Unique for the owner.
  form            TEXT NOT NULL,     -- How it is sent: "bearer", "basic:USER", "header:NAME".
  urls            BLOB NOT NULL,     -- Where it is sent, like "https://api.example.com/v1/": each followed by NUL.
  methods         BLOB NOT NULL,     -- Of HTTP; empty: all. Each followed by NUL.
  labels          BLOB NOT NULL,     -- That a workspace must have: names and values, each followed by NUL.
  variable        TEXT NOT NULL,     -- That holds the placeholder inside; empty: none.
  source          TEXT NOT NULL,     -- A word of SecretSource.
  place           TEXT NOT NULL,     -- The command or the file that has the secret; or the name of the sealed one in the store.
  created_wall_ms INTEGER NOT NULL,  -- When it was added.
  PRIMARY KEY (owner_uid, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE approvals (         -- Pushes that somebody has to allow, and what became of them.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- ap_N.
  workspace       INTEGER NOT NULL REFERENCES workspaces (id),  -- Where it was pushed.
  repository      TEXT NOT NULL,     -- The URL, as it was pushed to.
  ref             TEXT NOT NULL,     -- In full: "refs/heads/main".
  old_id          TEXT NOT NULL,     -- The ref's object before; zeros: it did not exist.
  new_id          TEXT NOT NULL,     -- The ref's object after.
  commits         INTEGER,           -- From old to new; null: a new ref.
  title           TEXT NOT NULL,     -- First line of the new commit's message, as a program inside wrote it; may be empty.
  state           TEXT NOT NULL CHECK (state IN ('waiting','approved','used','refused','expired')),  -- Life cycle.
  reason          TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  asked_wall_ms   INTEGER NOT NULL,  -- When it was first pushed.
  asked_age_ms    INTEGER NOT NULL,  -- The store's age then, or at the last decision: start of its expiry.
  decided_uid     INTEGER,           -- Host uid of the user who approved or refused it last; null: nobody yet.
  decided_wall_ms INTEGER NOT NULL DEFAULT 0,  -- When; 0: not yet.
  used_wall_ms    INTEGER NOT NULL DEFAULT 0   -- When the push passed; 0: not yet.
) STRICT;
CREATE INDEX approvals_of_workspace ON approvals (workspace, id);
CREATE INDEX approvals_open ON approvals (workspace) WHERE state IN ('waiting','approved');

CREATE TABLE leases (            -- The right to write, one row per workspace; it outlives the lease, so that no generation repeats.
  workspace        INTEGER PRIMARY KEY REFERENCES workspaces (id),  -- The workspace.
  generation       INTEGER NOT NULL,  -- Incremented by every acquire.
  holder           TEXT NOT NULL,  -- Name given by the last holder.
  holder_uid       INTEGER NOT NULL,  -- Host uid of the caller who acquired it.
  ttl_ms           INTEGER NOT NULL,  -- It lapses after this time without a sign of the holder.
  acquired_wall_ms INTEGER NOT NULL,  -- When it was acquired.
  ended            TEXT NOT NULL CHECK (ended IN ('','released','lapsed','deleted')),  -- How it ended; empty while it is held.
  clearing         INTEGER NOT NULL,  -- 1 until the commands of the previous lease have ended.
  request_key      TEXT,           -- Idempotency key of the acquire, so that a retry gets the same generation.
  secret_hash      TEXT NOT NULL DEFAULT ''  -- SHA-256 of the secret that proves it, as hex; empty: it cannot be proved.
) STRICT;

CREATE TABLE archives (          -- Archive files of workspaces, from the intent to create one until it is removed.
  id        INTEGER PRIMARY KEY AUTOINCREMENT,  -- Number in the file's name.
  workspace INTEGER NOT NULL UNIQUE REFERENCES workspaces (id),  -- The archived workspace.
  whole     INTEGER NOT NULL DEFAULT 0,  -- 1 if it contains the workspace; 0: incomplete, or to be removed.
  bytes     INTEGER NOT NULL DEFAULT 0,  -- Size of the file.
  sha256    TEXT NOT NULL DEFAULT '',    -- Of the whole file, 64 hex digits; empty: not complete.
  wall_ms   INTEGER NOT NULL DEFAULT 0,  -- When it was verified; 0: not yet.
  seal      TEXT NOT NULL DEFAULT ''     -- Seal of the archived layer, 64 hex digits; empty: unknown.
) STRICT;

CREATE TABLE archive_layers (    -- Contents of archives.
  archive INTEGER NOT NULL REFERENCES archives (id),  -- The archive.
  layer   INTEGER NOT NULL,      -- A layer that it contains completely; no reference: its row may be removed.
  PRIMARY KEY (archive, layer)
) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (         -- Execution environments, each for one workspace; kept as history.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- sb_N; names its directory, container and cgroup.
  workspace        INTEGER NOT NULL REFERENCES workspaces (id),  -- Its workspace.
  backend          TEXT NOT NULL,  -- Its backend.
  image            TEXT NOT NULL,  -- Its image.
  state            TEXT NOT NULL CHECK (state IN ('starting','running','frozen','stopping','stopped','lost',
                                                  'destroyed')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  init_pid         INTEGER NOT NULL DEFAULT 0,  -- Host pid of its first process; 0 if it never ran.
  init_start_ticks INTEGER NOT NULL DEFAULT 0,  -- That process's start time, to detect a reused pid.
  boot_id          TEXT NOT NULL,  -- Boot in which it was made; pids and devices mean nothing in another.
  tree_device      INTEGER NOT NULL DEFAULT 0,  -- st_dev of the overlay on /workspace.
  home_device      INTEGER NOT NULL DEFAULT 0,  -- st_dev of the overlay on /home/user.
  created_wall_ms  INTEGER NOT NULL,  -- When the row was made.
  started_wall_ms  INTEGER NOT NULL DEFAULT 0,  -- When it began to run; 0: never.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it was stopped or lost; 0: not yet.
  runtime          TEXT NOT NULL DEFAULT '',  -- Runtime of its engine; empty: the default.
  isolation        TEXT NOT NULL DEFAULT '',  -- Its isolation, as reported by its backend; empty: row older than this column.
  first_host_id    INTEGER NOT NULL DEFAULT 0,  -- Host id of its id 0; all sandboxes of an engine may share a range. 0: from an earlier release.
  standby          INTEGER NOT NULL DEFAULT 0  -- 1: without the workspace, until a move has ended the previous sandbox.
) STRICT;
CREATE UNIQUE INDEX sandboxes_live ON sandboxes (workspace) WHERE state NOT IN ('stopped','destroyed') AND standby = 0;
CREATE INDEX sandboxes_of_workspace ON sandboxes (workspace, id);
CREATE INDEX sandboxes_left ON sandboxes (state) WHERE state <> 'destroyed';

CREATE TABLE id_ranges (         -- Used slots of the pool of host ids; free ones have no row.
  slot    INTEGER PRIMARY KEY,   -- Number in the pool as configured at its holder's creation.
  sandbox INTEGER NOT NULL UNIQUE REFERENCES sandboxes (id)  -- Its holder, until destroyed.
) STRICT;

CREATE TABLE execs (             -- Commands, kept after their sandbox is removed.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- ex_N; names its journal.
  workspace        INTEGER NOT NULL REFERENCES workspaces (id),  -- Its workspace.
  sandbox          INTEGER NOT NULL REFERENCES sandboxes (id),   -- Its sandbox.
  owner_uid        INTEGER NOT NULL,  -- Host uid of the caller.
  idempotency_key  TEXT,          -- Key of the request: a key runs only once in a workspace.
  request_hash     TEXT NOT NULL, -- Hash of that request, to distinguish a retry from a conflict.
  argv             BLOB NOT NULL, -- The command: each word followed by NUL.
  environment      BLOB NOT NULL, -- Variables added by the request: name, NUL, value, NUL.
  directory        BLOB NOT NULL, -- Working directory inside.
  user             TEXT NOT NULL, -- User inside.
  terminal         INTEGER NOT NULL,  -- 1 if it has a PTY.
  input            INTEGER NOT NULL,  -- 1 if standard input is a pipe, 0 if it is /dev/null.
  timeout_ms       INTEGER NOT NULL,  -- Time limit; 0: none.
  state            TEXT NOT NULL CHECK (state IN ('running','exited','signalled','timed_out','oom_killed',
                                                  'cancelled','interrupted')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why it could not start, was interrupted or ended; while it runs, the source of its time limit.
  cancel_requested INTEGER NOT NULL DEFAULT 0,  -- 1 after a request to cancel it.
  exit_code        INTEGER,       -- Exit code of its main process, if it exited.
  signal           INTEGER,       -- Signal that ended its main process, if one did.
  started_wall_ms  INTEGER NOT NULL,  -- When the row was made: before the command ran.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it ended; 0: still running.
  output_bytes     INTEGER NOT NULL DEFAULT 0,  -- Output kept in the journal.
  omitted_bytes    INTEGER NOT NULL DEFAULT 0,  -- Output dropped after the limit.
  user_ms          INTEGER NOT NULL DEFAULT 0,  -- CPU time in user mode.
  system_ms        INTEGER NOT NULL DEFAULT 0,  -- CPU time in the kernel.
  max_rss_bytes    INTEGER NOT NULL DEFAULT 0,  -- Largest resident set of one of its processes.
  changed_files    INTEGER,       -- Changed files of the workspace, counted between it and the next command; null: not counted.
  category         TEXT NOT NULL DEFAULT '',    -- Why it ended, a word of exec_category.h; empty: unknown.
  hook             TEXT NOT NULL DEFAULT '',    -- pre_stop: the workspace's hook; empty: a client's command.
  imported_from    TEXT NOT NULL DEFAULT '',    -- "STORE_ID/ex_N" for an imported exec; empty: it ran here.
  sent_signal      INTEGER,       -- The last signal that the API sent to it; null: none.
  sent_by          TEXT NOT NULL DEFAULT '',    -- Its sender; empty: the exec's owner.
  merged           INTEGER NOT NULL DEFAULT 0,  -- 1 if one pipe carries its standard output and error.
  input_read       INTEGER,       -- Bytes of standard input that it read; null: no pipe, or not known.
  UNIQUE (workspace, idempotency_key)
) STRICT;
CREATE INDEX execs_of_workspace ON execs (workspace, id);
CREATE INDEX execs_running ON execs (sandbox) WHERE state = 'running';

CREATE TABLE snapshots (         -- Earlier states of workspaces, for restore and fork.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- sn_N.
  workspace       INTEGER NOT NULL REFERENCES workspaces (id),  -- Its workspace.
  parent          INTEGER REFERENCES snapshots (id),  -- The workspace's snapshot at that time; null: its base commit.
  layer           INTEGER REFERENCES layers (id),     -- The frozen layer; null once dropped.
  next_layer      INTEGER REFERENCES layers (id),     -- While it is taken in place: the next writable layer.
  next_on         INTEGER REFERENCES snapshots (id),  -- While it is taken in place: parent snapshot of next_layer; null: this one.
  name            TEXT NOT NULL, -- Name for people, or empty. Unique among the workspace's kept ones.
  external_id     TEXT NOT NULL, -- Its id in another program, such as an agent framework's checkpoint.
  cause           TEXT NOT NULL, -- Why it was taken: a name of snapshot_row.h.
  exec            INTEGER REFERENCES execs (id),      -- The command that followed, if any.
  way             TEXT NOT NULL, -- How it was taken: a name of snapshot_row.h.
  pause_us        INTEGER NOT NULL DEFAULT 0,  -- How long the sandbox was frozen.
  durable         INTEGER NOT NULL DEFAULT 0,  -- 1 once its files are synced.
  state           TEXT NOT NULL CHECK (state IN ('taking','kept','dropped')),  -- Life cycle.
  reason          TEXT NOT NULL DEFAULT '',    -- Why the last move was made.
  created_wall_ms INTEGER NOT NULL,  -- When it was requested.
  created_age_ms  INTEGER NOT NULL,  -- The store's age then: start of its retention.
  idempotency_key TEXT,          -- Key of its request.
  request_hash    TEXT NOT NULL DEFAULT '',    -- Hash of that request, to distinguish a retry from a conflict.
  moved_commit    TEXT NOT NULL DEFAULT '',    -- Of the workspace at that time.
  UNIQUE (workspace, idempotency_key)
) STRICT;
CREATE INDEX snapshots_of_workspace ON snapshots (workspace);
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (workspace, name) WHERE name <> '' AND state <> 'dropped';
CREATE INDEX snapshots_of_layer ON snapshots (layer) WHERE layer IS NOT NULL;
CREATE INDEX snapshots_of_next_layer ON snapshots (next_layer) WHERE next_layer IS NOT NULL;

CREATE TABLE best_of (           -- Several attempts at one task, each in a fork; one may be promoted.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- bo_N.
  workspace        INTEGER NOT NULL REFERENCES workspaces (id),  -- The workspace to fork.
  owner_uid        INTEGER NOT NULL,          -- Host uid of the caller, the owner of the forks.
  owner_gids       TEXT NOT NULL,             -- The caller's groups then, with spaces between: for the right to promote.
  lease            INTEGER,                   -- The lease in the request, if any.
  each_command     BLOB NOT NULL,             -- Words, each followed by NUL, with {i} in them; empty: patches.
  test_command     BLOB NOT NULL,             -- The same, for the test.
  patch_bytes      INTEGER NOT NULL,          -- Of all patches; 0: none.
  timeout_ms       INTEGER NOT NULL,          -- Limit of each command; 0: the workspace's.
  promote          TEXT NOT NULL CHECK (promote IN ('','first-passing','smallest-diff')),  -- Which attempt to promote; empty: none.
  parallel         INTEGER NOT NULL,          -- Largest number of concurrent attempts.
  keep             INTEGER NOT NULL,          -- 1: keep the sandboxes of finished attempts running.
  state            TEXT NOT NULL CHECK (state IN ('preparing','running','done','cancelled','failed')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  cancel_requested INTEGER NOT NULL DEFAULT 0,  -- 1 after a request to cancel it.
  chosen           INTEGER NOT NULL DEFAULT 0,  -- Number of the attempt to promote; 0: not chosen yet.
  promotion        TEXT NOT NULL DEFAULT '' CHECK (promotion IN ('','done','refused')),  -- Result of the promotion; empty: not finished yet.
  promotion_note   TEXT NOT NULL DEFAULT '',  -- Why it was refused.
  created_wall_ms  INTEGER NOT NULL,          -- When it was requested.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it ended; 0: not yet.
  idempotency_key  TEXT,                      -- Key of the request.
  request_hash     TEXT NOT NULL,             -- Hash of that request, to distinguish a retry from a conflict.
  lease_secret_hash TEXT NOT NULL DEFAULT '',  -- Proof of that lease; leases.secret_hash at that time.
  UNIQUE (owner_uid, idempotency_key)
) STRICT;
CREATE INDEX best_of_of_workspace ON best_of (workspace);
CREATE INDEX best_of_open ON best_of (id) WHERE state IN ('preparing','running');

CREATE TABLE best_of_attempts (  -- The attempts of best-ofs.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- at_N.
  best_of          INTEGER NOT NULL REFERENCES best_of (id),  -- Its best-of.
  number           INTEGER NOT NULL,          -- 1, 2... within its best-of.
  workspace        INTEGER REFERENCES workspaces (id),  -- The fork; null until it exists.
  label            TEXT NOT NULL,             -- Name of its patch, given by the client.
  patch_offset     INTEGER NOT NULL,          -- Offset of its patch in the file of all patches.
  patch_bytes      INTEGER NOT NULL,          -- Length of its patch.
  state            TEXT NOT NULL CHECK (state IN ('waiting','applying','testing','passed','failed','interrupted','cancelled')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  each_exec        INTEGER REFERENCES execs (id),  -- The command, or the one that applies its patch; null: not yet.
  test_exec        INTEGER REFERENCES execs (id),  -- The test; null: not yet.
  measured         INTEGER NOT NULL DEFAULT 0,  -- 1: the next four are known. Counted before the test.
  diff_files       INTEGER NOT NULL DEFAULT 0,  -- Files that differ from its starting point.
  diff_added       INTEGER NOT NULL DEFAULT 0,  -- Added lines.
  diff_removed     INTEGER NOT NULL DEFAULT 0,  -- Removed lines.
  diff_bytes       INTEGER NOT NULL DEFAULT 0,  -- Size of the patch with this difference.
  tail             BLOB NOT NULL DEFAULT x'',  -- Last output of its last command.
  started_wall_ms  INTEGER NOT NULL DEFAULT 0,  -- When it began; 0: not yet.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it ended; 0: not yet.
  UNIQUE (best_of, number)
) STRICT;
CREATE INDEX best_of_attempts_of_workspace ON best_of_attempts (workspace) WHERE workspace IS NOT NULL;

CREATE TABLE idempotency_keys (  -- Mutating requests with a key, and their final answers, kept a day for retries.
  owner_uid INTEGER NOT NULL,    -- Host uid of the caller.
  key       TEXT NOT NULL,       -- The caller's key.
  hash      TEXT NOT NULL,       -- Hash of the request, to distinguish a retry from a conflict.
  status    INTEGER NOT NULL,    -- HTTP status of the answer; 0: the effect is done, the answer not yet written.
  body      BLOB NOT NULL,       -- Body of the answer.
  age_ms    INTEGER NOT NULL,    -- The store's age then: start of its retention.
  headers   TEXT NOT NULL DEFAULT '',  -- Headers of the answer, a line each.
  subject   TEXT NOT NULL DEFAULT '',  -- While it has no answer: the object of the answer.
  PRIMARY KEY (owner_uid, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (age_ms);
