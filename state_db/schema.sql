-- The whole state of a store, as a new database gets it. An older one reaches the same shape through the
-- named migrations of migrations.cc; a test compares the two. Times are wall clock milliseconds since
-- 1970 UTC, sizes are bytes. State names are those of lifecycle.h. Tables are STRICT: a wrong type is refused.

CREATE TABLE meta (              -- Single facts about the store itself.
  name  TEXT PRIMARY KEY,        -- store_id: 8 hex digits; clean: 1 if the last owner closed it in order.
  value TEXT NOT NULL            -- The fact, as text.
) STRICT, WITHOUT ROWID;

CREATE TABLE store_age (         -- One row: for how long the host was up while it had this store (store_age.h).
  row     INTEGER PRIMARY KEY CHECK (row = 1),  -- Always 1.
  age_ms  INTEGER NOT NULL,      -- The age when it was last written down.
  boot_id TEXT NOT NULL,         -- Boot in which that was.
  boot_ms INTEGER NOT NULL       -- CLOCK_BOOTTIME then.
) STRICT;

CREATE TABLE migrations (        -- What has been applied to this database; an unknown name means a newer program.
  name       TEXT PRIMARY KEY,   -- Name in migrations.cc.
  by_version TEXT NOT NULL,      -- Version of the program that applied it.
  wall_ms    INTEGER NOT NULL    -- When it was applied.
) STRICT, WITHOUT ROWID;

CREATE TABLE events (            -- What happened, for followers and for people; the oldest are trimmed.
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,  -- Order of commits; never reused.
  wall_ms    INTEGER NOT NULL,   -- When it was written.
  kind       TEXT NOT NULL,      -- "workspace.state" and the like for moves; free for others.
  repository INTEGER,            -- The repository it is about, if any; no reference: events outlive rows.
  workspace  INTEGER,            -- The workspace it is about, also if it is about its sandbox or exec.
  sandbox    INTEGER,            -- The sandbox it is about, if any.
  exec       INTEGER,            -- The exec it is about, if any.
  snapshot   INTEGER,            -- The snapshot it is about, if any.
  from_state TEXT NOT NULL,      -- State before a move; empty for a new row and for other events.
  to_state   TEXT NOT NULL,      -- State after a move; empty for other events.
  text       TEXT NOT NULL       -- Reason, for people.
) STRICT;
CREATE INDEX events_of_workspace ON events (workspace, seq) WHERE workspace IS NOT NULL;

CREATE TABLE repositories (      -- Upstream repositories, each cached as one bare mirror.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- repo_N; names its directory.
  url             TEXT NOT NULL, -- Normalised URL without credentials: what is the same repository.
  fetch_url       TEXT NOT NULL, -- The URL as upstream knows it ("x.git"); for a local import the same as url.
  scope           TEXT NOT NULL, -- Credential scope: who may share the mirror; empty is public.
  name            TEXT NOT NULL, -- "owner/name", for people; not unique.
  state           TEXT NOT NULL CHECK (state IN ('cloning','ready','fetching','broken','evicted')),  -- Life cycle.
  reason          TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  default_branch  TEXT NOT NULL DEFAULT '',  -- Upstream's HEAD when it was last seen.
  fetched_wall_ms INTEGER NOT NULL DEFAULT 0,  -- When objects last came in; 0 is never.
  checked_wall_ms INTEGER NOT NULL DEFAULT 0,  -- When upstream last answered; 0 is never.
  stale_reason    TEXT NOT NULL DEFAULT '',  -- Why the last check failed; empty if it did not.
  bytes           INTEGER NOT NULL DEFAULT 0,  -- Size of the mirror on disk.
  created_wall_ms INTEGER NOT NULL,  -- When the row was made.
  UNIQUE (url, scope)
) STRICT;

CREATE TABLE base_trees (        -- Immutable checkouts of one commit, shared by workspaces; the row comes after the tree.
  repository        INTEGER NOT NULL REFERENCES repositories (id),  -- Whose commit it is.
  commit_id         TEXT NOT NULL,     -- 40 hex digits; names its directory.
  files             INTEGER NOT NULL,  -- Number of files and links.
  bytes             INTEGER NOT NULL,  -- Sum of their sizes.
  submodules        INTEGER NOT NULL,  -- Number of gitlinks, left as empty directories.
  lfs_files         INTEGER NOT NULL,  -- Number of LFS pointers, left as they are.
  synced            INTEGER NOT NULL,  -- 1 if it is known to survive a power cut.
  boot_id           TEXT NOT NULL,     -- Boot in which it was written; not synced and another boot means rebuild.
  created_wall_ms   INTEGER NOT NULL,  -- When it was written.
  last_used_wall_ms INTEGER NOT NULL,  -- When a workspace last started from it.
  parent            TEXT NOT NULL DEFAULT '',  -- Commit over whose tree it is a delta, or was while mounts stand on it; empty: none.
  disk_files        INTEGER NOT NULL DEFAULT 0,  -- Number of files that are its own.
  disk_bytes        INTEGER NOT NULL DEFAULT 0,  -- Sum of their sizes.
  PRIMARY KEY (repository, commit_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE layers (            -- Changes over a base tree or over a parent layer.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- ly_N; names its directory.
  parent          INTEGER REFERENCES layers (id),  -- The frozen layer below; none: directly on the base tree.
  repository      INTEGER NOT NULL REFERENCES repositories (id),  -- Whose base tree is at the bottom.
  base_commit     TEXT NOT NULL, -- Commit of that base tree, 40 hex digits.
  frozen          INTEGER NOT NULL DEFAULT 0,  -- 1 if it never changes again.
  created_wall_ms INTEGER NOT NULL,  -- When the row was made.
  instead_of      INTEGER REFERENCES layers (id),  -- Of a merge: what it took the place of, while that may be mounted.
  mounted_upto    INTEGER,       -- Of a merge: mounts of writable layers up to this id may be older than it.
  cold            INTEGER NOT NULL DEFAULT 0,  -- 1: all that stand on it are archived; it is in their archives, and what lies in its place is not all of it.
  disk_bytes      INTEGER,       -- What it takes, when last measured; null is never.
  disk_files      INTEGER,       -- Its inodes, when last measured.
  measured        INTEGER NOT NULL DEFAULT 0,  -- 1 if that is since it was frozen, and since its kin changed.
  kin             INTEGER        -- Those that have files in common with it have the same number; null: none.
) STRICT;
CREATE INDEX layers_of_parent ON layers (parent) WHERE parent IS NOT NULL;
CREATE INDEX layers_of_base ON layers (repository, base_commit);
CREATE INDEX layers_of_kin ON layers (kin) WHERE kin IS NOT NULL;

CREATE TABLE workspaces (        -- The durable things that tasks work in.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- ws_N.
  name            TEXT NOT NULL, -- What people call it; unique among the owner's live ones.
  owner_uid       INTEGER NOT NULL,  -- Host uid of the caller who made it.
  team_gid        INTEGER,       -- Host group whose members may use it, too; null: private.
  repository      INTEGER NOT NULL REFERENCES repositories (id),  -- Where it started.
  base_ref        TEXT NOT NULL, -- Ref that was asked for; empty is the default branch.
  base_commit     TEXT NOT NULL, -- Commit that it was then, 40 hex digits.
  branch          TEXT NOT NULL, -- Branch that the agent works on.
  layer           INTEGER REFERENCES layers (id),  -- The writable layer; none after the purge.
  backend         TEXT NOT NULL, -- Backend that its sandboxes are made on.
  image           TEXT NOT NULL, -- Image that its sandboxes use.
  memory_bytes    INTEGER NOT NULL,  -- Limit of its sandboxes.
  cpus            REAL NOT NULL, -- Limit of its sandboxes, in CPUs.
  pids            INTEGER NOT NULL,  -- Limit of its sandboxes, in processes.
  idle_stop_s     INTEGER NOT NULL DEFAULT -1,  -- An idle sandbox is stopped after; 0 is never, -1 as configured.
  max_lifetime_s  INTEGER NOT NULL DEFAULT -1,  -- Any sandbox is stopped after; 0 is never, -1 as configured.
  pre_stop        BLOB NOT NULL DEFAULT x'',  -- Command before a sandbox is stopped: each word followed by NUL; empty is none.
  pre_stop_deadline_s INTEGER NOT NULL DEFAULT 30,  -- How long that may take.
  max_exec_s      INTEGER NOT NULL DEFAULT 0,  -- Longest command; 0 is no limit, as in the next two.
  max_execs       INTEGER NOT NULL DEFAULT 0,  -- How many commands may ever run.
  max_exec_total_s INTEGER NOT NULL DEFAULT 0,  -- Wall time that all commands together may ever take.
  used_execs      INTEGER NOT NULL DEFAULT 0,  -- How many commands there were; pre_stop does not count.
  used_exec_ms    INTEGER NOT NULL DEFAULT 0,  -- Wall time of those that ended.
  state           TEXT NOT NULL CHECK (state IN ('creating','ready','archiving','archived','unarchiving',
                                                 'deleting','deleted','failed')),  -- Life cycle.
  reason          TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  disposable      INTEGER NOT NULL,  -- 1 if it is deleted with its first exec (run --rm).
  changes_files   INTEGER,       -- Changed files when last counted; null is never.
  changes_wall_ms INTEGER NOT NULL DEFAULT 0,  -- When they were counted.
  unpushed        INTEGER,       -- Commits that upstream does not have, when last counted.
  disk_bytes      INTEGER,       -- What its own layers and its journals take, when last measured (layer_disk.h).
  created_wall_ms INTEGER NOT NULL,  -- When the row was made.
  deleted_wall_ms INTEGER,       -- When it became a tombstone, for people; undelete clears it.
  deleted_age_ms  INTEGER,       -- The store's age then: what the undo window is counted from.
  purge_wall_ms   INTEGER,       -- When the removal of its files began: no way back.
  purged_wall_ms  INTEGER,       -- When they were gone; the row stays as history.
  idempotency_key TEXT,          -- Key of the request that made it.
  request_hash    TEXT NOT NULL, -- Hash of that request, to tell a retry from a clash.
  disk_files      INTEGER,       -- Inodes of its own layers, when last measured.
  rest_age_ms     INTEGER NOT NULL DEFAULT 0,  -- The store's age when it was made or last stopped: what idleness is counted from.
  pinned          INTEGER NOT NULL DEFAULT 0,  -- 1 if collection leaves it alone, whatever the disk looks like.
  caches          BLOB NOT NULL DEFAULT x'',   -- Inside paths that may be removed at rest: each followed by NUL.
  disk_limit_bytes INTEGER NOT NULL DEFAULT 0, -- Limit of its layers; 0 is none.
  disk_limit_files INTEGER NOT NULL DEFAULT 0, -- Limit of their inodes; 0 is none.
  stands_on       INTEGER REFERENCES snapshots (id),  -- The last one taken of it or restored; none: its base commit.
  forked_from     INTEGER REFERENCES snapshots (id),  -- Where it began, if it is a fork.
  attempt         INTEGER NOT NULL DEFAULT 0,  -- Which of several forks made together it is, from 1; 0 is alone.
  attempts        INTEGER NOT NULL DEFAULT 0,  -- Of how many.
  snapshot_before_exec INTEGER NOT NULL DEFAULT 0,  -- 1: of the state before each command.
  snapshot_on_stop INTEGER NOT NULL DEFAULT 0,  -- 1: whenever its sandbox was stopped.
  snapshot_every_s INTEGER NOT NULL DEFAULT 0,  -- While it runs and works; 0 is never.
  runtime         TEXT NOT NULL DEFAULT '',  -- Of its sandboxes, as their engine calls it; empty: the usual one.
  journal_bytes   INTEGER NOT NULL DEFAULT 0,  -- Of disk_bytes: the records and output of its commands.
  fork_of         TEXT NOT NULL DEFAULT '',  -- "STORE_ID/ws_N/sn_N/NAME": it was forked from that, elsewhere, and came with an archive; empty: it was not.
  UNIQUE (owner_uid, idempotency_key)
) STRICT;
CREATE UNIQUE INDEX workspaces_live_name ON workspaces (owner_uid, name) WHERE state NOT IN ('deleted','failed');
CREATE INDEX workspaces_kept ON workspaces (state) WHERE purged_wall_ms IS NULL;
CREATE INDEX workspaces_left ON workspaces (id) WHERE purged_wall_ms IS NULL;
CREATE INDEX workspaces_of_layer ON workspaces (layer) WHERE layer IS NOT NULL;
CREATE INDEX workspaces_of_fork ON workspaces (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX workspaces_of_team ON workspaces (team_gid) WHERE team_gid IS NOT NULL;

CREATE TABLE workspace_integrity (  -- Whether a workspace is as it was left; no row: never looked at.
  workspace      INTEGER PRIMARY KEY REFERENCES workspaces (id),  -- Whose.
  state          TEXT NOT NULL,  -- The last answer: a word of IntegrityState.
  reason         TEXT NOT NULL DEFAULT '',  -- Why, for people; empty: nothing to say.
  wall_ms        INTEGER NOT NULL,  -- When it was last looked at.
  seal           TEXT NOT NULL DEFAULT '',  -- Hash of its layer at rest (layer_seal.h); empty while anything of ours may write there.
  sealed_wall_ms INTEGER NOT NULL DEFAULT 0  -- When a seal was last taken; 0 is never.
) STRICT;

CREATE TABLE workspace_labels (  -- What callers attach to a workspace: task, user, conversation.
  workspace INTEGER NOT NULL REFERENCES workspaces (id),  -- Whose label it is.
  name      TEXT NOT NULL,       -- Its key.
  value     TEXT NOT NULL,       -- Its value.
  PRIMARY KEY (workspace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (            -- The right to write, one row a workspace; it outlives the lease, so that no generation comes twice.
  workspace        INTEGER PRIMARY KEY REFERENCES workspaces (id),  -- What may be written to.
  generation       INTEGER NOT NULL,  -- Grows with every acquire.
  holder           TEXT NOT NULL,  -- What the last holder calls itself.
  holder_uid       INTEGER NOT NULL,  -- Host uid of the caller who acquired it.
  ttl_ms           INTEGER NOT NULL,  -- It lapses when nothing was heard of the holder for so long.
  acquired_wall_ms INTEGER NOT NULL,  -- When it was acquired.
  ended            TEXT NOT NULL CHECK (ended IN ('','released','lapsed','deleted')),  -- How it ended; empty while it is held.
  clearing         INTEGER NOT NULL,  -- 1 until what ran under the lease before has ended.
  request_key      TEXT,           -- Idempotency key of the acquire, so that a repeat gets the same generation.
  secret_hash      TEXT NOT NULL DEFAULT ''  -- SHA-256 of the secret that proves it, as hex; empty: nobody can prove it.
) STRICT;

CREATE TABLE archives (          -- Files that workspaces lie in, from the intent to make one until it is gone.
  id        INTEGER PRIMARY KEY AUTOINCREMENT,  -- Number in the file's name.
  workspace INTEGER NOT NULL UNIQUE REFERENCES workspaces (id),  -- Whose archive it is.
  whole     INTEGER NOT NULL DEFAULT 0,  -- 1 if the workspace is in it; 0: being made, or to be removed.
  bytes     INTEGER NOT NULL DEFAULT 0,  -- Size of the file.
  sha256    TEXT NOT NULL DEFAULT '',    -- Of the whole file, 64 hex digits; empty: not made yet.
  wall_ms   INTEGER NOT NULL DEFAULT 0,  -- When it was verified; 0 is not yet.
  seal      TEXT NOT NULL DEFAULT ''     -- Of the layer as it was put into the file, 64 hex digits; empty: not known.
) STRICT;

CREATE TABLE archive_layers (    -- What is in an archive.
  archive INTEGER NOT NULL REFERENCES archives (id),  -- Which one.
  layer   INTEGER NOT NULL,      -- A layer that it has all of; no reference: its row may be gone.
  PRIMARY KEY (archive, layer)
) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (         -- Execution environments, each for one workspace; kept as history.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- sb_N; names its directory, container and cgroup.
  workspace        INTEGER NOT NULL REFERENCES workspaces (id),  -- Whom it serves.
  backend          TEXT NOT NULL,  -- Backend that made it.
  image            TEXT NOT NULL,  -- Image that it runs.
  state            TEXT NOT NULL CHECK (state IN ('starting','running','frozen','stopping','stopped','lost',
                                                  'destroyed')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  init_pid         INTEGER NOT NULL DEFAULT 0,  -- Host pid of its first process; 0 if it never ran.
  init_start_ticks INTEGER NOT NULL DEFAULT 0,  -- That process's start time, so that a reused pid is told apart.
  boot_id          TEXT NOT NULL,  -- Boot in which it was made; pids and devices mean nothing in another.
  tree_device      INTEGER NOT NULL DEFAULT 0,  -- st_dev of the overlay on /workspace.
  home_device      INTEGER NOT NULL DEFAULT 0,  -- st_dev of the overlay on /home/user.
  created_wall_ms  INTEGER NOT NULL,  -- When the row was made.
  started_wall_ms  INTEGER NOT NULL DEFAULT 0,  -- When it ran; 0 is never.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it was stopped or lost; 0 is not yet.
  runtime          TEXT NOT NULL DEFAULT '',  -- Of its engine; empty: the usual one.
  isolation        TEXT NOT NULL DEFAULT '',  -- What it isolates, as its backend said; empty: from before this column.
  first_host_id    INTEGER NOT NULL DEFAULT 0,  -- Host id of its id 0; an engine may give all of its sandboxes one range. 0: an earlier release made it.
  standby          INTEGER NOT NULL DEFAULT 0  -- 1: without the workspace, until a move has ended the one before it.
) STRICT;
CREATE UNIQUE INDEX sandboxes_live ON sandboxes (workspace) WHERE state NOT IN ('stopped','destroyed') AND standby = 0;
CREATE INDEX sandboxes_of_workspace ON sandboxes (workspace, id);
CREATE INDEX sandboxes_left ON sandboxes (state) WHERE state <> 'destroyed';

CREATE TABLE id_ranges (         -- Slots of the pool of host ids that are in use; free ones have no row.
  slot    INTEGER PRIMARY KEY,   -- Number in the pool as it lay when its holder was made.
  sandbox INTEGER NOT NULL UNIQUE REFERENCES sandboxes (id)  -- Its holder, until destroyed.
) STRICT;

CREATE TABLE execs (             -- Commands, kept after their sandbox is gone.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- ex_N; names its journal.
  workspace        INTEGER NOT NULL REFERENCES workspaces (id),  -- Where it runs.
  sandbox          INTEGER NOT NULL REFERENCES sandboxes (id),   -- In which sandbox it ran.
  owner_uid        INTEGER NOT NULL,  -- Host uid of the caller.
  idempotency_key  TEXT,          -- Key of the request: the same key never runs twice in a workspace.
  request_hash     TEXT NOT NULL, -- Hash of that request, to tell a retry from a clash.
  argv             BLOB NOT NULL, -- The command: each word followed by NUL.
  environment      BLOB NOT NULL, -- What the request added: name, NUL, value, NUL.
  directory        BLOB NOT NULL, -- Working directory inside.
  user             TEXT NOT NULL, -- User inside.
  terminal         INTEGER NOT NULL,  -- 1 if it has a PTY.
  input            INTEGER NOT NULL,  -- 1 if standard input is a pipe, 0 if it is /dev/null.
  timeout_ms       INTEGER NOT NULL,  -- Time limit; 0 is none.
  state            TEXT NOT NULL CHECK (state IN ('running','exited','signalled','timed_out','oom_killed',
                                                  'cancelled','interrupted')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why it could not be started, was interrupted or ended; while it runs, what limits its time.
  cancel_requested INTEGER NOT NULL DEFAULT 0,  -- 1 if somebody asked to cancel it.
  exit_code        INTEGER,       -- Exit code of its main process, if it exited.
  signal           INTEGER,       -- Signal that ended its main process, if one did.
  started_wall_ms  INTEGER NOT NULL,  -- When the row was made: before the command ran.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it ended; 0 is running.
  output_bytes     INTEGER NOT NULL DEFAULT 0,  -- Output kept in the journal.
  omitted_bytes    INTEGER NOT NULL DEFAULT 0,  -- Output dropped after the limit.
  user_ms          INTEGER NOT NULL DEFAULT 0,  -- CPU time in user mode.
  system_ms        INTEGER NOT NULL DEFAULT 0,  -- CPU time in the kernel.
  max_rss_bytes    INTEGER NOT NULL DEFAULT 0,  -- Largest resident set of one of its processes.
  changed_files    INTEGER,       -- Changed files of the workspace, counted after it and before another ran; null: not counted.
  category         TEXT NOT NULL DEFAULT '',    -- Why it ended so, a word of exec_category.h; empty if not known.
  hook             TEXT NOT NULL DEFAULT '',    -- pre_stop: the workspace's own command; empty is a client's.
  imported_from    TEXT NOT NULL DEFAULT '',    -- "STORE_ID/ex_N": it ran there, and came with an archive; empty: it ran here.
  sent_signal      INTEGER,       -- The last signal that the API sent to it; null: none.
  sent_by          TEXT NOT NULL DEFAULT '',    -- Who that was; empty: who runs it.
  UNIQUE (workspace, idempotency_key)
) STRICT;
CREATE INDEX execs_of_workspace ON execs (workspace, id);
CREATE INDEX execs_running ON execs (sandbox) WHERE state = 'running';

CREATE TABLE snapshots (         -- States of workspaces that one can go back to.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- sn_N.
  workspace       INTEGER NOT NULL REFERENCES workspaces (id),  -- Whose state it is.
  parent          INTEGER REFERENCES snapshots (id),  -- What the workspace stood on then; none: its base commit.
  layer           INTEGER REFERENCES layers (id),     -- The frozen layer; none once dropped.
  next_layer      INTEGER REFERENCES layers (id),     -- While it is taken in place: the writable layer that follows.
  next_on         INTEGER REFERENCES snapshots (id),  -- While it is taken in place: what that stands on; none: this one.
  name            TEXT NOT NULL, -- What people call it; empty is nothing. Unique among the workspace's kept ones.
  external_id     TEXT NOT NULL, -- What another program calls it, such as an agent framework's checkpoint.
  cause           TEXT NOT NULL, -- Why it was taken: a name of snapshot_row.h.
  exec            INTEGER REFERENCES execs (id),      -- The command that it was taken before, if any.
  way             TEXT NOT NULL, -- How it was taken: a name of snapshot_row.h.
  pause_us        INTEGER NOT NULL DEFAULT 0,  -- How long the sandbox was frozen.
  durable         INTEGER NOT NULL DEFAULT 0,  -- 1 once its files are on disk, too.
  state           TEXT NOT NULL CHECK (state IN ('taking','kept','dropped')),  -- Life cycle.
  reason          TEXT NOT NULL DEFAULT '',    -- Why the last move was made.
  created_wall_ms INTEGER NOT NULL,  -- When it was asked for.
  created_age_ms  INTEGER NOT NULL,  -- The store's age then: what retention counts from.
  idempotency_key TEXT,          -- Key of the request that took it.
  request_hash    TEXT NOT NULL DEFAULT '',    -- Hash of that request, to tell a retry from a clash.
  UNIQUE (workspace, idempotency_key)
) STRICT;
CREATE INDEX snapshots_of_workspace ON snapshots (workspace);
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (workspace, name) WHERE name <> '' AND state <> 'dropped';
CREATE INDEX snapshots_of_layer ON snapshots (layer) WHERE layer IS NOT NULL;
CREATE INDEX snapshots_of_next_layer ON snapshots (next_layer) WHERE next_layer IS NOT NULL;

CREATE TABLE best_of (           -- Several attempts at one thing, each in a fork, of which one is promoted.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- bo_N.
  workspace        INTEGER NOT NULL REFERENCES workspaces (id),  -- What is forked.
  owner_uid        INTEGER NOT NULL,          -- Host uid of the caller, who gets the forks.
  owner_gids       TEXT NOT NULL,             -- His groups then, with spaces between: for the right to promote.
  lease            INTEGER,                   -- The lease that the request carried, if any.
  each_command     BLOB NOT NULL,             -- Words, each followed by NUL, with {i} in them; none: patches.
  test_command     BLOB NOT NULL,             -- The same, of the test.
  patch_bytes      INTEGER NOT NULL,          -- Of all patches; 0: none.
  timeout_ms       INTEGER NOT NULL,          -- Limit of each command; 0: that of the workspace.
  promote          TEXT NOT NULL CHECK (promote IN ('','first-passing','smallest-diff')),  -- Which attempt the workspace goes on from; empty: none.
  parallel         INTEGER NOT NULL,          -- At most so many attempts at once.
  keep             INTEGER NOT NULL,          -- 1: sandboxes of attempts that ended are not stopped.
  state            TEXT NOT NULL CHECK (state IN ('preparing','running','done','cancelled','failed')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  cancel_requested INTEGER NOT NULL DEFAULT 0,  -- 1 if somebody asked to cancel it.
  chosen           INTEGER NOT NULL DEFAULT 0,  -- Number of the attempt that is to be promoted; 0: none yet.
  promotion        TEXT NOT NULL DEFAULT '' CHECK (promotion IN ('','done','refused')),  -- What became of that; empty: not tried to its end yet.
  promotion_note   TEXT NOT NULL DEFAULT '',  -- Why it was refused.
  created_wall_ms  INTEGER NOT NULL,          -- When it was asked for.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it ended; 0 is not yet.
  idempotency_key  TEXT,                      -- Key of the request.
  request_hash     TEXT NOT NULL,             -- Hash of that request, to tell a retry from a clash.
  lease_secret_hash TEXT NOT NULL DEFAULT '',  -- What proved that lease; leases.secret_hash then.
  UNIQUE (owner_uid, idempotency_key)
) STRICT;
CREATE INDEX best_of_of_workspace ON best_of (workspace);
CREATE INDEX best_of_open ON best_of (id) WHERE state IN ('preparing','running');

CREATE TABLE best_of_attempts (  -- One attempt each.
  id               INTEGER PRIMARY KEY AUTOINCREMENT,  -- at_N.
  best_of          INTEGER NOT NULL REFERENCES best_of (id),  -- Of which it is one.
  number           INTEGER NOT NULL,          -- 1, 2... of so many as it has.
  workspace        INTEGER REFERENCES workspaces (id),  -- The fork; none while that is made.
  label            TEXT NOT NULL,             -- The name of its patch, as the client gave it.
  patch_offset     INTEGER NOT NULL,          -- Where its patch begins in the file of all.
  patch_bytes      INTEGER NOT NULL,          -- How long that is.
  state            TEXT NOT NULL CHECK (state IN ('waiting','applying','testing','passed','failed','interrupted','cancelled')),  -- Life cycle.
  reason           TEXT NOT NULL DEFAULT '',  -- Why the last move was made.
  each_exec        INTEGER REFERENCES execs (id),  -- The command, or the one that applies its patch; none yet.
  test_exec        INTEGER REFERENCES execs (id),  -- The test; none yet.
  measured         INTEGER NOT NULL DEFAULT 0,  -- 1: the next four are known. Counted before the test.
  diff_files       INTEGER NOT NULL DEFAULT 0,  -- Files that differ from where it began.
  diff_added       INTEGER NOT NULL DEFAULT 0,  -- Lines of these.
  diff_removed     INTEGER NOT NULL DEFAULT 0,  -- The same.
  diff_bytes       INTEGER NOT NULL DEFAULT 0,  -- Size of the patch that makes this difference.
  tail             BLOB NOT NULL DEFAULT x'',  -- The end of the output of its last command.
  started_wall_ms  INTEGER NOT NULL DEFAULT 0,  -- When it began; 0 is not yet.
  ended_wall_ms    INTEGER NOT NULL DEFAULT 0,  -- When it ended; 0 is not yet.
  UNIQUE (best_of, number)
) STRICT;
CREATE INDEX best_of_attempts_of_workspace ON best_of_attempts (workspace) WHERE workspace IS NOT NULL;

CREATE TABLE idempotency_keys (  -- Mutating requests that have a key, and their final answers, kept a day for retries.
  owner_uid INTEGER NOT NULL,    -- Host uid of the caller.
  key       TEXT NOT NULL,       -- The caller's key.
  hash      TEXT NOT NULL,       -- Hash of the request, to tell a retry from a clash.
  status    INTEGER NOT NULL,    -- HTTP status that was answered; 0: its effect is there, and the answer is not yet.
  body      BLOB NOT NULL,       -- Body that was answered.
  age_ms    INTEGER NOT NULL,    -- The store's age then: what it is kept by.
  headers   TEXT NOT NULL DEFAULT '',  -- Headers that were answered, a line each.
  subject   TEXT NOT NULL DEFAULT '',  -- While it has no answer: what the answer will be about.
  PRIMARY KEY (owner_uid, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (age_ms);
