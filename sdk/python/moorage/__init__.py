"""Client of Moorage: durable workspaces for coding agents, on this host.

    import moorage

    with moorage.Client() as client:
        workspace = client.create("https://github.com/acme/shop", name="fix")
        result = workspace.run("make test", timeout=600)       # a string for bash, or a list of words
        if not result.ok:
            print(result.exit_code, result.stdout, result.stderr)
        workspace.files.write("NOTES", "by the script")
        print(workspace.diff().decode())

Client               the daemon: create, get, workspaces, repositories, credentials, events, info...
Workspace            run, stream, start_exec, files, diff, snapshot, restore, fork, best_of, network, lease...
Files                read, write, list, stat, remove, rename, make_dir, symlink, upload, download
OutputStream         output while it comes: iterate over it
Exec                 a command by its id: wait, output, write, signal, cancel
AsyncClient          the same for asyncio: every call is awaited (moorage.aio)
MoorageError         base of all errors; below it one class for each error code of the API
moorage.results      what calls return: frozen dataclasses

Units: timeout and wait are seconds; other names end in their unit, like idle_stop_s, timeout_ms, disk_bytes. Times are
aware datetimes. Modes are ints, like 0o644. A call whose answer is lost is repeated, and runs once.
"""

from . import results
from .aio import AsyncClient
from .client import Client
from .errors import (
    AlreadyExistsError, CommandFailedError, ConflictError, CorruptedError, InternalError, Interrupted, InvalidArgumentError,
    IoError, MoorageError, NotFoundError, PermissionDeniedError, PreconditionFailedError, ResourceExhaustedError, TimeoutError,
    UnavailableError, UnknownOutcomeError, UnsupportedError,
)
from .execs import Exec
from .files import Files
from .hosts import Approvals, Credentials, Repositories
from .records import Chunk
from .results import ExecInfo, FileInfo, Limits, Result, WorkspaceInfo
from .streams import OutputStream
from .tree import Copied
from .version import __version__
from .workspace import HeldWorkspace, Workspace

__all__ = [
    "AlreadyExistsError", "Approvals", "AsyncClient", "Chunk", "Client", "CommandFailedError", "ConflictError", "Copied",
    "CorruptedError", "Credentials", "Exec", "ExecInfo", "FileInfo", "Files", "HeldWorkspace", "InternalError", "Interrupted",
    "InvalidArgumentError", "IoError", "Limits", "MoorageError", "NotFoundError", "OutputStream", "PermissionDeniedError",
    "PreconditionFailedError", "Repositories", "ResourceExhaustedError", "Result", "TimeoutError", "UnavailableError",
    "UnknownOutcomeError", "UnsupportedError", "Workspace", "WorkspaceInfo", "__version__", "results",
]
