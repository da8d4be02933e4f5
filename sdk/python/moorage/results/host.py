"""Records of the host: its store, repositories, network and credentials."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping

from .record import Record
from .workspaces import Blocked, Doing, Limits


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class NetworkRule(Record):
    """A rule for a host. from: operator, workspace, or the name of the network."""

    verdict: str
    host: str
    origin: str = dataclasses.field(metadata={"json": "from"})
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class NetworkUse(Record):
    """What a running sandbox uses of the network."""

    connections: int
    connected: int
    names: int
    bytes_in: int
    bytes_out: int
    refused: int
    over_limit: int


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Network(Record):
    """The rules of a workspace's network, and its use now."""

    network: str
    summary: str
    rules: tuple[NetworkRule, ...]
    use: NetworkUse | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class NetworkCheck(Record):
    """Whether a host may be reached, and why. inside: the error that a program would read."""

    host: str
    port: int
    verdict: str
    why: str
    notes: tuple[str, ...]
    inside: str | None = None

    @property
    def allowed(self) -> bool:
        """Whether the host may be reached."""
        return self.verdict == "allow"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Credential(Record):
    """A credential without its secret. places: URLs that it is used for. form: bearer, basic, header:NAME..."""

    name: str
    user: str
    form: str = dataclasses.field(metadata={"json": "as"})
    places: tuple[str, ...] = dataclasses.field(metadata={"json": "for"})
    created_at: datetime.datetime
    methods: tuple[str, ...] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    variable: str | None = None
    placeholder: str | None = None
    command: str | None = None
    file: str | None = None
    sealed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Approval(Record):
    """A push that waits for an approval, or has one. `state` is waiting, approved, used, refused or expired."""

    id: str
    workspace: str
    workspace_id: str
    repository: str
    ref: str
    old: str
    new: str
    state: str
    asked_at: datetime.datetime
    commits: int | None = None
    title: str | None = None
    decided_by: str | None = None
    decided_at: datetime.datetime | None = None
    used_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Repository(Record):
    """A cached repository. tip: commit of the default branch; bytes: of the mirror."""

    id: str
    url: str = ""
    name: str = ""
    state: str = ""
    default_branch: str | None = None
    tip: str | None = None
    fetched_at: datetime.datetime | None = None
    checked_at: datetime.datetime | None = None
    stale: bool = False
    stale_reason: str | None = None
    bytes: int | None = None
    workspaces: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Import(Record):
    """An imported checkout, to create workspaces from."""

    repo: str
    head_commit: str
    work_commit: str
    raw_commit: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Progress(Record):
    """Progress of a long call. percent: -1 if unknown."""

    phase: str = ""
    percent: int = -1
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class HostCheck(Record):
    """A check of the host."""

    name: str
    ok: bool
    text: str = ""
    hint: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RemoteHost(Record):
    """Another machine for sandboxes, or a provider of such."""

    name: str
    sandboxes: int = 0
    max_sandboxes: int | None = None
    last_contact: datetime.datetime | None = None
    on_stop: str | None = None
    paused: int | None = None
    not_paused: str | None = None
    sent_again: int | None = None
    overlay: str | None = None
    limits: tuple[str, ...] = ()
    last_error: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Backend(Record):
    """A backend for sandboxes. runtimes: name to isolation."""

    name: str
    usable: bool = False
    reason: str | None = None
    isolation: str | None = None
    runtimes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hosts: tuple[RemoteHost, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Space(Record):
    """The disk of the store, in bytes."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    kept_free_bytes: int | None = None
    level: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Counts(Record):
    """How many of each there are."""

    workspaces: int = 0
    sandboxes: int = 0
    execs_running: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class PolicyRule(Record):
    """A rule of the host."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class HostPolicy(Record):
    """The host's rules; yours: those that may apply to the caller."""

    rules: int
    yours: tuple[PolicyRule, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Replica(Record):
    """The replica of the store."""

    directory: str
    state: str
    behind_s: int | None = None
    as_of: datetime.datetime | None = None
    problem: str | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Info(Record):
    """The daemon (version, process id), its checks, backends, space and counts. rescue: why it is in rescue mode, or None."""

    version: str = ""
    pid: int = 0
    store_id: str = ""
    store: str = ""
    kernel: str = ""
    cgroup: str = ""
    checks: tuple[HostCheck, ...] = ()
    backends: tuple[Backend, ...] = ()
    space: Space | None = None
    counts: Counts | None = None
    policy: HostPolicy | None = None
    replica: Replica | None = None
    rescue: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Setting(Record):
    """An effective setting and where it comes from."""

    name: str
    value: str = ""
    unit: str = ""
    source: str = ""
    help: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Event(Record):
    """Something that happened. seq: pass it as `since` to continue after it."""

    seq: int
    at: datetime.datetime
    kind: str
    repo: str | None = None
    workspace: str | None = None
    sandbox: str | None = None
    exec: str | None = None
    snapshot: str | None = None
    before: str | None = dataclasses.field(default=None, metadata={"json": "from"})
    after: str | None = dataclasses.field(default=None, metadata={"json": "to"})
    text: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BaseUse(Record):
    """The base tree under a workspace, in bytes."""

    repo: str = ""
    commit: str = ""
    bytes: int | None = None
    shared_by: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class WorkspaceUse(Record):
    """Disk use of a workspace, in bytes."""

    id: str
    name: str
    owner: int
    state: str
    edits_bytes: int
    snapshot_bytes: int
    journal_bytes: int
    complete: bool
    base: BaseUse
    owner_name: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TreeUse(Record):
    """A base tree of a repository."""

    commit: str
    bytes: int = 0
    shared_by: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RepositoryUse(Record):
    """Disk use of a repository, in bytes."""

    id: str
    name: str = ""
    mirror_bytes: int = 0
    trees: tuple[TreeUse, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class StoreUse(Record):
    """Disk use of the whole store, in bytes."""

    edits_bytes: int = 0
    snapshots_bytes: int = 0
    journals_bytes: int = 0
    archives_bytes: int = 0
    base_trees_bytes: int = 0
    mirrors_bytes: int = 0
    images_bytes: int = 0
    sandboxes_bytes: int = 0
    database_bytes: int = 0
    reserve_bytes: int = 0
    lost_bytes: int = 0
    other_bytes: int = 0
    total_bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class DiskUsage(Record):
    """Disk use, measured now. complete: False if some sizes are stale. store and space: root only."""

    as_of: datetime.datetime
    complete: bool
    workspaces: tuple[WorkspaceUse, ...]
    repos: tuple[RepositoryUse, ...]
    exports_bytes: int | None = None
    store: StoreUse | None = None
    space: Space | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class CollectionRow(Record):
    """Something that gc removes, or keeps, and why."""

    rung: str = ""
    subject: str = ""
    goes: bool = False
    why: str = ""
    repo: str | None = None
    workspace: str | None = None
    commit: str | None = None
    path: str | None = None
    bytes: int | None = None
    files: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Collection(Record):
    """What gc would remove, or removed. Sizes in bytes."""

    rows: tuple[CollectionRow, ...] = ()
    bytes: int = 0
    goes: int = 0
    kept: int = 0
    complete: bool = False
    freed_bytes: int | None = None
    enough: bool | None = None
    space: Space | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Finding(Record):
    """A difference that doctor found. `mend`: the repair that doctor(fix=True) makes; command: for a person."""

    check: str
    severity: str
    subject: str
    text: str
    mended: bool
    mend: str | None = None
    command: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Diagnosis(Record):
    """The result of doctor. clean: all findings are notes or repaired."""

    clean: bool
    findings: tuple[Finding, ...]
    storage: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Waiting(Record):
    """A command that waits for input."""

    exec: str
    argv: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TopSandbox(Record):
    """Resource use of a sandbox. cpu_us: since its start, in microseconds."""

    id: str
    state: str
    memory_bytes: int | None = None
    cpu_us: int | None = None
    processes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TopWorkspace(Record):
    """Current activity of a workspace."""

    id: str
    name: str
    owner: int
    state: str
    execs_running: int
    waiting: tuple[Waiting, ...]
    limits: Limits | None = None
    disk_bytes: int | None = None
    last_output_at: datetime.datetime | None = None
    sandbox: TopSandbox | None = None
    doing: Doing | None = None
    blocked: Blocked | None = None
    network: NetworkUse | None = None
    owner_name: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Top(Record):
    """Current activity. CPU use between two answers: the difference of cpu_us divided by that of boot_us."""

    at: datetime.datetime
    boot_us: int
    cpus: int
    space: Space
    workspaces: tuple[TopWorkspace, ...]
