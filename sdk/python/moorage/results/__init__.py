"""Results: frozen dataclasses, named and documented as in docs/openapi.yaml. Times are aware datetimes."""

from .changes import DiffStat, FileChange, LeftOut, Patch, Status
from .commands import (
    ExecInfo, History, HistoryWorkspace, Result,
)
from .files import FileInfo
from .host import (
    Approval, Backend, BaseUse, Collection, CollectionRow, Counts, Credential, Diagnosis, DiskUsage, Event,
    Finding, HostCheck, HostPolicy, Import, Info, Network, NetworkCheck, NetworkRule, NetworkUse, PolicyRule,
    Progress, RemoteHost, Replica, Repository, RepositoryUse, Setting, Space, StoreUse, Top, TopSandbox,
    TopWorkspace, TreeUse, Waiting, WorkspaceUse,
)
from .workspaces import (
    Archive, Attempt, AttemptDiff, Base, BestOf, BestOfAttempt, BestOfStep, Blocked, Changes, ComparedFile, Comparison,
    ComparisonSide, Doing, ForkedElsewhere, Integrity, Lease, Limits, Lineage, LineageWorkspace, MoveCheck, Place,
    RemoteMachine, ReplicaOfWorkspace, RepoOfWorkspace, Sandbox, Snapshot, Stopped, StoreSpace, Totals, WorkspaceInfo,
)
from .record import Record

__all__ = [
    "Approval", "Archive", "Attempt", "AttemptDiff", "Backend", "Base", "BaseUse", "BestOf", "BestOfAttempt", "BestOfStep",
    "Blocked", "Changes", "Collection", "CollectionRow", "ComparedFile", "Comparison", "ComparisonSide", "Counts",
    "Credential", "Diagnosis", "DiffStat", "DiskUsage", "Doing", "Event", "ExecInfo", "FileChange", "FileInfo",
    "Finding", "ForkedElsewhere", "History", "HistoryWorkspace", "HostCheck", "HostPolicy", "Import", "Info",
    "Integrity", "Lease", "LeftOut", "Limits", "Lineage", "LineageWorkspace", "MoveCheck", "Network", "NetworkCheck",
    "NetworkRule", "NetworkUse", "Patch", "Place", "PolicyRule", "Progress", "Record", "RemoteHost", "RemoteMachine",
    "Replica", "ReplicaOfWorkspace", "RepoOfWorkspace", "Repository", "RepositoryUse", "Result", "Sandbox",
    "Setting", "Snapshot", "Space", "Status", "Stopped", "StoreSpace", "StoreUse", "Top", "TopSandbox", "TopWorkspace",
    "Totals", "TreeUse", "Waiting", "WorkspaceInfo", "WorkspaceUse",
]
