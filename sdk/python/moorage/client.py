# Made from aio/client.py by make_plain.py. Do not edit it here.
"""The client: the daemon, and the way to its workspaces."""

from __future__ import annotations

from collections.abc import Iterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal

from . import calls
from .calls import Body, Call, Command, Path
from .decode import decode, decode_list
from .errors import UnavailableError
from .http1 import CutOff, segment
from .results import (
    BestOf, Collection, Diagnosis, DiskUsage, Event, ExecInfo, Import, Info, Limits, Progress, Setting, StoreSpace, Top,
    WorkspaceInfo,
)
from .execs import Exec
from .hosts import Approvals, Credentials, Repositories
from .session import Session, lines, parsed
from .transport import Silence
from .workspace import Workspace, collect


class Client:
    """A client of the Moorage daemon on this host.

        with Client() as client:
            workspace = client.create("https://github.com/acme/shop", name="fix")
            result = workspace.run("make test", timeout=600)
            print(result.exit_code, result.stdout)

    socket       the daemon's; None: MOORAGE_SOCKET, or /run/moorage/mooraged.sock
    timeout      seconds without a byte after which a call raises TimeoutError; None: 120, or 1800 if it clones or copies
    reconnect_s  seconds to wait for a daemon that restarts while a command runs; None: MOORAGE_RECONNECT_S, or 600
    lease        token of a lease for changes; None: MOORAGE_LEASE, also the short name that `moorage lease acquire` shows

    More calls are in `repositories`, `credentials` and `approvals`. Threads can share a plain client, tasks an async one.
    It connects with the first call. Closing it closes only idle connections: workspaces and commands continue.
    A refused call raises a class of MoorageError, like NotFoundError; UnavailableError: the daemon cannot be reached.
    """

    def __init__(self, socket: Path | None = None, *, timeout: float | None = None, reconnect_s: float | None = None,
                 lease: str | None = None) -> None:
        path = calls.socket_path(socket)
        silence_s = calls.seconds_of(timeout, "timeout")
        self._session = Session(path, silence_s, calls.reconnect_s(reconnect_s), calls.lease_token(path, lease))
        self.repositories = Repositories(self._session)
        self.credentials = Credentials(self._session)
        self.approvals = Approvals(self._session)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._session.socket}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        self._session.close()

    # -- workspaces -----------------------------------------------------------------------------------

    def create(self, repo: str | None = None, *, name: str | None = None, imported: Import | None = None,
                     ref: str | None = None, branch: str | None = None, labels: Mapping[str, str] | None = None,
                     backend: str | None = None, image: str | None = None, runtime: str | None = None,
                     disposable: bool | None = None, team: str | None = None, limits: Limits | None = None,
                     idle_stop_s: int | None = None, max_lifetime_s: int | None = None, pre_stop: Command | None = None,
                     pre_stop_deadline_s: int | None = None, max_exec_s: int | None = None, max_execs: int | None = None,
                     max_exec_total_s: int | None = None, pinned: bool | None = None, caches: Iterable[str] | None = None,
                     snapshot_before_exec: bool | None = None, snapshot_on_stop: bool | None = None,
                     snapshot_every_s: int | None = None, network: str | None = None,
                     push: Literal["refuse", "ask", "allow"] | None = None, push_refs: Iterable[str] | None = None,
                     progress: Callable[[Progress], object] | None = None, key: str | None = None) -> Workspace:
        """Creates a workspace from a repository. May take minutes, the first time that the repository is used.

        repo        URL of the repository; or imported: a checkout from repositories.import_bundle()
        name        a-z, 0-9 and -; None: after the repository
        ref         branch, tag or commit; None: the default branch
        branch      the agent's branch; None: moorage/NAME
        disposable  deleted after its last command
        team        a host group of the caller, whose members may use it
        progress    called with each Progress
        The others are its labels, its place (backend, image, runtime), and its policy, as in Workspace.update().

        AlreadyExistsError for a name in use, NotFoundError for a ref that upstream does not have.
        """
        body = calls.policy_body(
            labels=labels, limits=limits, pre_stop=pre_stop, caches=caches, push_refs=push_refs, repo_url=repo, name=name,
            ref=ref, branch=branch, backend=backend, image=image, runtime=runtime, disposable=disposable, team=team,
            idle_stop_s=idle_stop_s, max_lifetime_s=max_lifetime_s, pre_stop_deadline_s=pre_stop_deadline_s,
            max_exec_s=max_exec_s, max_execs=max_execs, max_exec_total_s=max_exec_total_s, pinned=pinned,
            snapshot_before_exec=snapshot_before_exec, snapshot_on_stop=snapshot_on_stop, snapshot_every_s=snapshot_every_s,
            network=network, push=push)
        if imported is not None:
            body["import"] = {"repo": imported.repo, "head_commit": imported.head_commit, "work_commit": imported.work_commit,
                              "raw_commit": imported.raw_commit or imported.work_commit}
        return Workspace(self._session, decode(WorkspaceInfo, self._session.long("/workspaces", body, progress, key)))

    def get(self, workspace: str) -> Workspace:
        """A workspace by name or id ("ws_3"). NotFoundError."""
        answer = self._session.json("GET", f"/workspaces/{segment(workspace)}")
        return Workspace(self._session, decode(WorkspaceInfo, answer))

    def workspaces(self, *, deleted: bool = False) -> list[Workspace]:
        """All workspaces that the caller sees, by id. deleted: with those that undelete() can bring back."""
        return collect(self.each_workspace(deleted=deleted))

    def each_workspace(self, *, deleted: bool = False, page: int | None = None) -> Iterator[Workspace]:
        """The same one by one, requesting each page (of 1000, or `page`) when it is needed."""
        after: str | None = None
        while True:
            answer = self._page(deleted, after, page)
            for info in decode_list(WorkspaceInfo, answer["workspaces"]):
                yield Workspace(self._session, info)
            after = answer.get("next")
            if after is None:
                return

    def _page(self, deleted: bool, after: str | None, limit: int | None) -> dict[str, Any]:
        query = {"deleted": 1 if deleted else None, "after": after, "limit": limit}
        return dict(self._session.json("GET", "/workspaces", query=query))

    def import_workspace(self, archive: Body, name: str | None = None, *, key: str | None = None) -> Workspace:
        """Creates a workspace of the caller from an export, as Workspace.export() writes it.

        archive: bytes, or a file open for reading bytes. CorruptedError or InvalidArgumentError if it is damaged: then nothing is
        created.
        """
        call = Call("POST", "/workspaces/import", {"name": name}, archive, key=key or "", silence_s=calls.LONG_SILENCE_S)
        return Workspace(self._session, decode(WorkspaceInfo, parsed((self._session.request(call))[1])))

    # -- commands and best-ofs by id ------------------------------------------------------------------

    def exec(self, exec_id: str) -> Exec:
        """A command by its id, like "ex_5", whoever started it. Requests nothing yet."""
        return Exec(self._session, exec_id)

    def execs(self, *, running: bool = False, limit: int | None = None, before: str | None = None) -> list[ExecInfo]:
        """Commands of all workspaces that the caller sees, newest first: at most `limit` (1000).

        before: only those older than this id, for the next page.
        """
        query = {"running": 1 if running else None, "limit": limit, "before": before}
        return decode_list(ExecInfo, self._session.json("GET", "/execs", query=query))

    def best_of(self, best_of: str, *, wait: float = 0) -> BestOf:
        """Progress of a best-of, like "bo_3". wait: seconds to wait for its end, at most 3600."""
        answer = self._session.json("GET", f"/best-of/{segment(best_of)}", query={"wait": round(wait) or None},
                                          waits_s=wait)
        return decode(BestOf, answer)

    def cancel_best_of(self, best_of: str, *, key: str | None = None) -> BestOf:
        """Cancels its running commands and starts no others. Its forks stay. ConflictError if it has ended."""
        return decode(BestOf, self._session.json("POST", f"/best-of/{segment(best_of)}/cancel", key=key))

    # -- the daemon and its host ----------------------------------------------------------------------

    def health(self) -> str | None:
        """None: the daemon serves requests. A text: why it is in rescue mode, where only root may read and export."""
        answer = self._session.json("GET", "/health")
        return None if answer is None else str(answer["rescue"])

    def info(self) -> Info:
        """Version, checks of the host, backends, space and counts."""
        return decode(Info, self._session.json("GET", "/info"))

    def space(self) -> StoreSpace:
        """The disk of the store, in bytes, and what workspaces use of it."""
        return decode(StoreSpace, (self._page(False, None, 1))["store"])

    def settings(self) -> list[Setting]:
        """Effective settings of the daemon, and the source of each."""
        return decode_list(Setting, self._session.json("GET", "/config"))

    def top(self, *, mine: bool = False) -> Top:
        """Current activity of the workspaces. mine: only the caller's own, even for root."""
        return decode(Top, self._session.json("GET", "/top", query={"mine": 1 if mine else None}))

    def disk_usage(self, workspace: str | None = None) -> DiskUsage:
        """Disk use in bytes, measured now, of all workspaces that the caller sees, or of one by name or id."""
        answer = self._session.json("GET", "/du", query={"workspace": workspace}, silence_s=calls.LONG_SILENCE_S)
        return decode(DiskUsage, answer)

    def gc_plan(self) -> Collection:
        """What gc would remove or keep, and why."""
        return decode(Collection, self._session.json("GET", "/gc"))

    def gc_run(self, until_free_bytes: int | None = None, *, key: str | None = None) -> Collection:
        """Runs gc, until so much of the disk is free if given. Root only."""
        answer = self._session.json("POST", "/gc", calls.given(until_free_bytes=until_free_bytes), key=key,
                                          silence_s=calls.LONG_SILENCE_S)
        return decode(Collection, answer)

    def doctor(self, *, fix: bool = False, deep: bool = False) -> Diagnosis:
        """Differences between the store and its database. Root only. fix: repair what is safe to repair.

        deep: check every object, file and record, too; takes minutes.
        """
        wanted: dict[str, Any] = {"body": {"deep": deep}} if fix else {"query": {"deep": 1 if deep else None}}
        method = "POST" if fix else "GET"
        return decode(Diagnosis, self._session.json(method, "/doctor", silence_s=calls.LONG_SILENCE_S, **wanted))

    def reload_policy(self, *, key: str | None = None) -> list[str]:
        """Puts the section `policy` of the configuration file into effect, without a restart. Root only.

        Returns the names of other settings that differ in the file: they need a restart. A wrong file changes nothing.
        """
        answer = self._session.json("POST", "/config/reload", key=key)
        return list(answer["need_restart"])

    def events(self, since: int = 0, *, follow: bool = False) -> Iterator[Event]:
        """Events after the number `since`, oldest first. follow: new ones, too; it then never ends by itself.

        A lost connection is taken up again after the last event.
        """
        backoff, began = calls.Backoff(self._session.reconnect_s), False
        while True:
            call = Call("GET", "/events", {"since": since, "follow": 1 if follow else None}, accept=calls.NDJSON,
                        silence_s=None if follow else calls.SILENCE_S)
            try:
                answer = self._session.open_patiently(call)
            except UnavailableError as error:
                if not began:
                    raise
                self._session.pause(backoff, error)
                continue
            began = True
            try:
                for line in lines(answer):
                    event = decode(Event, line)
                    since = event.seq
                    backoff.reset()
                    yield event
                if not follow:
                    return
                failure = self._session.lost(call, CutOff("the daemon stopped"))
            except (CutOff, Silence) as error:
                failure = self._session.lost(call, CutOff(str(error)))
            finally:
                answer.close()
            self._session.pause(backoff, failure)

    def rescue_export(self, workspace: str) -> Iterator[bytes]:
        """In rescue mode, for root: all that is on disk of a workspace, piece by piece, as a zstd-compressed tar."""
        call = Call("GET", f"/rescue/workspaces/{segment(workspace)}", accept="*/*", silence_s=calls.LONG_SILENCE_S)
        for piece in self._session.pieces(call):
            yield piece

    def request(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None,
                      key: str | None = None) -> Any:
        """Any call of the API, for fields and routes that this release does not know.

        path: without /v1, like "/workspaces/ws_3", its names percent-encoded. body: an object to send as JSON. Returns the
        JSON of the answer, or None.
        """
        return self._session.json(method, path, body, query=dict(query or {}), key=key)

    def metrics(self) -> str:
        """Counters and gauges for Prometheus, in its text format."""
        return (self._session.request(Call("GET", "/metrics", root="", accept="*/*")))[1].decode()
