"""Records of workspaces, their snapshots, forks and attempts."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping

from .record import Record


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Limits(Record):
    """Limits of a workspace; sizes in bytes. As an argument, None leaves a limit unchanged. 0 disk: no limit."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    disk_files: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Lease(Record):
    """The writer lease of a workspace: who holds it, or how the last one ended. token: only in the answer to acquiring
    it.
    """

    held: bool
    generation: int
    holder: str | None = None
    uid: int | None = None
    user: str | None = None
    since_at: datetime.datetime | None = None
    seen_ms_ago: int | None = None
    ttl_s: int | None = None
    ended: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Attempt(Record):
    """A number among forks that were created together."""

    number: int
    of: int


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RepoOfWorkspace(Record):
    """The repository of a workspace. origin: the URL of that remote in its git; None: it has none."""

    id: str
    name: str = ""
    url: str = ""
    origin: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Base(Record):
    """Where the branch of a workspace began. behind: commits of upstream's branch that it lacks, at most 10000.
    lost: its commits that upstream's branch lacks, because its history was rewritten.
    moved_to: newer commit of upstream that a rebase or merge inside brought in; changes are counted from it.

    work: in a workspace from a checkout with uncommitted work, a child of commit with that work; diff compares with it.
    """

    ref: str = ""
    commit: str = ""
    work: str | None = None
    moved_to: str | None = None
    behind: int | None = None
    lost: int = 0
    checked_at: datetime.datetime | None = None
    stale: bool = False
    stale_reason: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Doing(Record):
    """The newest running command of a workspace."""

    exec: str
    argv: tuple[str, ...] = ()
    since_at: datetime.datetime | None = None
    last_output_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Blocked(Record):
    """A running command that was refused a host."""

    host: str
    exec: str


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Changes(Record):
    """Counted changes since the base commit."""

    files: int
    as_of: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RemoteMachine(Record):
    """Where commands run on another machine, and how old the files here are."""

    connected: bool
    waiting_packs: int
    waiting_ends: int
    behind_ms: int | None = None
    overlay: str | None = None
    limits: tuple[str, ...] = ()
    network: str | None = None
    reason: str | None = None
    restored: int | None = None
    kept_ms: int | None = None
    user_ms_in_24h: int | None = None
    user_limit_h: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Sandbox(Record):
    """The live sandbox of a workspace. Sizes in bytes, durations in milliseconds."""

    id: str
    state: str
    backend: str | None = None
    image: str | None = None
    runtime: str | None = None
    isolation: str | None = None
    started_at: datetime.datetime | None = None
    reason: str | None = None
    busy_with: str | None = None
    idle_since_at: datetime.datetime | None = None
    idle_stop_in_ms: int | None = None
    lifetime_left_ms: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    cpu_ms: int | None = None
    remote: RemoteMachine | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Stopped(Record):
    """Why the last sandbox of a workspace ended, for people, while there is no live one."""

    since_at: datetime.datetime | None = None
    reason: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Integrity(Record):
    """Whether a workspace's files were unchanged at the last check: intact, changed-outside, lost or needs-repair."""

    state: str
    reason: str | None = None
    checked_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ReplicaOfWorkspace(Record):
    """State of a workspace in the replica."""

    state: str
    behind_s: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ForkedElsewhere(Record):
    """The origin of an imported fork, as its archive says; not verified."""

    store: str = ""
    workspace: str = ""
    snapshot: str = ""
    name: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Archive(Record):
    """The file of an archived workspace; bytes: its size."""

    file: str = ""
    bytes: int | None = None
    sha256: str | None = None
    archived_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class WorkspaceInfo(Record):
    """The record of a workspace. `_s` are seconds, `_ms` milliseconds, `_bytes` bytes. `state` is creating, ready,
    archiving, archived, unarchiving, deleting, deleted or failed.
    """

    id: str
    name: str = ""
    state: str = ""
    owner: int | None = None
    owner_name: str | None = None
    access: str | None = None
    team: str | None = None
    holder: Lease | None = None
    repo: RepoOfWorkspace | None = None
    base: Base | None = None
    branch: str | None = None
    stands_on: str | None = None
    forked_from: str | None = None
    forked_elsewhere: ForkedElsewhere | None = None
    attempt: Attempt | None = None
    unpushed: int | None = None
    reason: str | None = None
    doing: Doing | None = None
    blocked: Blocked | None = None
    changes: Changes | None = None
    disk_bytes: int | None = None
    disk_files: int | None = None
    disk_quota: str | None = None
    pinned: bool = False
    caches: tuple[str, ...] = ()
    snapshot_before_exec: bool = False
    snapshot_on_stop: bool = False
    snapshot_every_s: int = 0
    network: str | None = None
    push: str | None = None
    push_refs: tuple[str, ...] = ()
    network_rules: tuple[str, ...] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    backend: str | None = None
    image: str | None = None
    runtime: str | None = None
    limits: Limits | None = None
    idle_stop_s: int | None = None
    max_lifetime_s: int | None = None
    pre_stop: tuple[str, ...] = ()
    pre_stop_deadline_s: int | None = None
    max_exec_s: int | None = None
    max_execs: int | None = None
    max_exec_total_s: int | None = None
    used_execs: int | None = None
    used_exec_ms: int | None = None
    disposable: bool = False
    notice: str | None = None
    ended: tuple[str, ...] = ()
    sandbox: Sandbox | None = None
    stopped: Stopped | None = None
    created_at: datetime.datetime | None = None
    deleted_at: datetime.datetime | None = None
    integrity: Integrity | None = None
    replica: ReplicaOfWorkspace | None = None
    archive: Archive | str | None = None  # text in rescue mode: the file
    submodules: int | None = None
    lfs: int | None = None
    base_files: int | None = None
    rescued: bool = False
    layers: tuple[str, ...] = ()
    lost_layers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class StoreSpace(Record):
    """The disk of the store. used_bytes: of all workspaces that the caller sees."""

    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Place(Record):
    """Where commands run."""

    backend: str
    image: str
    runtime: str | None = None
    isolation: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class MoveCheck(Record):
    """The effect of a move. execs: running commands that it waits for. notices: losses, and what ends."""

    before: Place = dataclasses.field(metadata={"json": "from"})
    after: Place = dataclasses.field(metadata={"json": "to"})
    running: bool
    execs: tuple[str, ...]
    notices: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Snapshot(Record):
    """A kept state of a workspace. disk_bytes: of its own files. pause_us: microseconds that running processes were
    paused.
    """

    id: str
    workspace: str
    name: str
    cause: str
    way: str
    state: str
    durable: bool
    created_at: datetime.datetime
    external_id: str | None = None
    pause_us: int | None = None
    disk_bytes: int | None = None
    parent: str | None = None
    exec: str | None = None
    reason: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class LineageWorkspace(Record):
    """A workspace in a tree of forks."""

    id: str
    name: str
    state: str
    stands_on: str | None = None
    forked_from: str | None = None
    attempt: Attempt | None = None
    base: Base | None = None
    created_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Lineage(Record):
    """Related snapshots and forks."""

    workspaces: tuple[LineageWorkspace, ...]
    snapshots: tuple[Snapshot, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BestOfStep(Record):
    """A command of an attempt."""

    exec: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    category: str | None = None
    took_ms: int | None = None
    argv: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ComparisonSide(Record):
    """One of two compared workspaces. base: its base commit."""

    id: str
    name: str
    base: str
    attempt: Attempt | None = None
    last: BestOfStep | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ComparedFile(Record):
    """A file that differs. bytes: its sizes as git stores it; 0: it does not exist there. left_out: as in DiffStat."""

    path: str
    change: str
    added: int = 0
    removed: int = 0
    binary: bool = False
    bytes_from: int | None = None
    bytes_to: int | None = None
    left_out: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Totals(Record):
    """Sums of a comparison."""

    files: int = 0
    added: int = 0
    removed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Record):
    """Differences from one workspace to another."""

    before: ComparisonSide = dataclasses.field(metadata={"json": "from"})
    after: ComparisonSide = dataclasses.field(metadata={"json": "to"})
    total: Totals
    files: tuple[ComparedFile, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AttemptDiff(Record):
    """Size of an attempt's changes; bytes: of its patch."""

    files: int = 0
    added: int = 0
    removed: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BestOfAttempt(Record):
    """One attempt of a best-of. workspace: its fork. tail: the end of its last command's output."""

    number: int
    of: int
    state: str
    workspace: str | None = None
    name: str | None = None
    kept: bool = False
    patch: str | None = None
    reason: str | None = None
    each: BestOfStep | None = None
    test: BestOfStep | None = None
    diff: AttemptDiff | None = None
    tail: str | None = None
    took_ms: int | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BestOf(Record):
    """Several attempts at one task. `state` is preparing, running, done, cancelled or failed; chosen: the number of the
    promoted attempt.
    """

    id: str
    workspace: str
    name: str
    state: str
    count: int
    parallel: int
    keep: bool
    test: tuple[str, ...]
    attempts: tuple[BestOfAttempt, ...]
    reason: str | None = None
    each: tuple[str, ...] = ()
    timeout_ms: int | None = None
    promote: str = ""
    cancel_requested: bool = False
    chosen: int | None = None
    promotion: str | None = None
    promotion_note: str | None = None
    created_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether all attempts had ended when this was read."""
        return self.state in ("done", "cancelled", "failed")
