"""The async client, for asyncio: moorage.AsyncClient. The same calls as the plain one, to be awaited; no threads.

When a task is canceled while a command runs, the command goes on; the CancelledError has its id as `exec_id`.
"""

from .client import AsyncClient
from .execs import AsyncExec
from .files import AsyncFiles
from .hosts import AsyncApprovals, AsyncCredentials, AsyncRepositories
from .streams import AsyncOutputStream
from .workspace import AsyncHeldWorkspace, AsyncWorkspace

__all__ = [
    "AsyncApprovals", "AsyncClient", "AsyncCredentials", "AsyncExec", "AsyncFiles", "AsyncHeldWorkspace", "AsyncOutputStream",
    "AsyncRepositories", "AsyncWorkspace",
]
