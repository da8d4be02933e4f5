"""Parts of a client: repositories, credentials and pushes that wait for an approval."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping

from .. import calls
from ..calls import Body, Call, Path
from ..decode import decode, decode_list
from ..http1 import segment
from ..results import Approval, Credential, Import, Progress, Repository
from .session import AsyncSession, parsed


class AsyncRepositories:
    """Cached repositories: `client.repositories`. A repository is given by id ("repo_3"), name or URL."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, url: str, *, progress: Callable[[Progress], object] | None = None, key: str | None = None) -> Repository:
        """Caches a repository, or updates its mirror. May take minutes."""
        return decode(Repository, await self._session.long("/repos", {"url": url}, progress, key))

    async def list(self) -> list[Repository]:
        """All that the caller sees."""
        return decode_list(Repository, await self._session.json("GET", "/repos"))

    async def get(self, repository: str) -> Repository:
        """One repository."""
        return decode(Repository, await self._session.json("GET", f"/repos/{segment(repository)}"))

    async def fetch(self, repository: str, *, progress: Callable[[Progress], object] | None = None,
                    key: str | None = None) -> Repository:
        """Fetches from upstream now. May take minutes."""
        return decode(Repository, await self._session.long(f"/repos/{segment(repository)}/fetch", None, progress, key))

    async def remove(self, repository: str, *, key: str | None = None) -> None:
        """Removes the mirror. ConflictError while a workspace uses it."""
        await self._session.json("DELETE", f"/repos/{segment(repository)}", key=key, silence_s=calls.LONG_SILENCE_S)

    async def import_tips(self, label: str) -> tuple[str, ...]:
        """Commits already imported from the checkout `label` (its path here): the next bundle can leave them out."""
        return tuple((await self._session.json("GET", "/repos/import", query={"label": label}))["tips"])

    async def import_bundle(self, label: str, bundle: Body, *, origin: str | None = None, key: str | None = None) -> Import:
        """Imports a checkout from a git bundle with refs/moorage/head and refs/moorage/work, for Client.create(imported=...).

        bundle: bytes, or a file open for reading bytes. origin: the URL of its remote, without user and password.
        """
        query = {"label": label, "origin": origin} if origin else {"label": label}
        call = Call("POST", "/repos/import", query, bundle, key=key or "", silence_s=calls.LONG_SILENCE_S)
        return decode(Import, parsed((await self._session.request(call))[1]))


class AsyncCredentials:
    """Secrets that workspaces use without having them: `client.credentials`. Secrets are never in an answer."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(self) -> list[Credential]:
        """The caller's, by name; for root those of all users."""
        return decode_list(Credential, (await self._session.json("GET", "/credentials"))["credentials"])

    async def add(self, name: str, places: Iterable[str], *, command: str | None = None, file: Path | None = None,
                  sealed: bytes | None = None, form: str = "bearer", variable: str | None = None, methods: Iterable[str] = (),
                  labels: Mapping[str, str] | None = None, key: str | None = None) -> Credential:
        """Adds a credential, or replaces the one of this name. Applies to running sandboxes at once.

        places: URLs that it is used for, like https://api.example.com/v1/. The secret comes from one of: command, run by
        sh on the host as the caller; file, an absolute path there; sealed, what seal() returned. form: "bearer", "basic",
        "basic:USER", "header:NAME", or "ssh-key". variable: holds a placeholder inside. methods: of HTTP; none: all.
        labels: only for workspaces that have them.
        """
        body = calls.given(command=command, file=None if file is None else os.fspath(file), variable=variable,
                           labels=None if labels is None else dict(labels), methods=list(methods) or None,
                           sealed=None if sealed is None else base64.b64encode(sealed).decode())
        body |= {"name": name, "for": [*places], "as": form}
        return decode(Credential, await self._session.json("POST", "/credentials", body, key=key))

    async def seal(self, secret: bytes) -> bytes:
        """The secret, encrypted for the store's host by the program openssl. subprocess.CalledProcessError if that fails."""
        certificate = (await self._session.json("GET", "/credentials/key"))["certificate"]
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # only the certificate
            file.write(certificate)
            file.flush()
            argv = ["openssl", "cms", "-encrypt", "-aes-256-gcm", "-binary", "-outform", "DER", file.name]
            return subprocess.run(argv, input=secret, check=True, capture_output=True).stdout

    async def remove(self, name: str, *, key: str | None = None) -> None:
        """Removes one of the caller's; running sandboxes lose it at once."""
        await self._session.json("DELETE", f"/credentials/{segment(name)}", key=key)

    async def test(self, name: str) -> Credential:
        """Reads the secret once and forgets it. Raises the reason if it is not available."""
        return decode(Credential, await self._session.json("POST", f"/credentials/{segment(name)}/test", {}))


class AsyncApprovals:
    """Pushes of git that wait for an approval or have one: `client.approvals`. For the workspace's owner and root."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(self) -> list[Approval]:
        """Those of all workspaces that the caller sees, newest first; Workspace.approvals() has those of one."""
        return decode_list(Approval, (await self._session.json("GET", "/approvals"))["approvals"])

    async def approve(self, approval: str, *, key: str | None = None) -> Approval:
        """Lets the same push pass, once, within a day. approval: an id, like "ap_3"."""
        return decode(Approval, await self._session.json("POST", f"/approvals/{segment(approval)}/approve", {}, key=key))

    async def refuse(self, approval: str, *, key: str | None = None) -> Approval:
        """Refuses the push. It can be approved later."""
        return decode(Approval, await self._session.json("POST", f"/approvals/{segment(approval)}/refuse", {}, key=key))
