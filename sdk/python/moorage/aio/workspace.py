"""A workspace: commands, files, snapshots, forks, changes, its network and its lease."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Literal

from .. import calls
from ..calls import Body, Call, Command, Path
from ..decode import decode, decode_list, put_text, put_words
from ..errors import ConflictError, MoorageError, NotFoundError
from ..http1 import segment
from ..results import (
    Approval, BestOf, Comparison, DiffStat, ExecInfo, History, Lease, Limits, Lineage, MoveCheck, Network, NetworkCheck, Patch,
    Progress, Result, Snapshot, Status, WorkspaceInfo,
)
from .execs import AsyncExec
from .files import AsyncFiles
from .session import AsyncSession
from .streams import AsyncOutputStream
from .transport import Ticker

ReportProgress = Callable[[Progress], object]


class AsyncWorkspace:
    """A workspace, from Client.create() or get(). It is on the host, and does not need this object.

    id          like "ws_3"
    name, info  its name and record when it was last read; refresh() reads it again
    files       its files

    Errors of all calls: NotFoundError if it was deleted, ConflictError if a command runs or another holder has the lease,
    PermissionDeniedError, UnavailableError; and those that a method names.
    key: an idempotency key. Calls with the same key run once, for programs that repeat a call themselves.
    """

    def __init__(self, session: AsyncSession, info: WorkspaceInfo) -> None:
        self._session, self.info = session, info
        self._path = f"/workspaces/{segment(info.id)}"
        self.files = AsyncFiles(session, self._path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.name}>"

    @property
    def id(self) -> str:
        """Its id, like "ws_3"; it never changes."""
        return self.info.id

    @property
    def name(self) -> str:
        """Its name when it was last read."""
        return self.info.name

    async def _json(self, method: str, rest: str, body: Any = None, **more: Any) -> Any:
        return await self._session.json(method, self._path + rest, body, **more)

    async def _changed(self, method: str, rest: str, body: Any = None, **more: Any) -> WorkspaceInfo:
        """A call that answers with the workspace's record."""
        more.setdefault("silence_s", calls.LONG_SILENCE_S)
        self.info = decode(WorkspaceInfo, await self._json(method, rest, body, **more))
        return self.info

    async def refresh(self) -> WorkspaceInfo:
        """Reads its record again, with the resource use of its sandbox."""
        return await self._changed("GET", "", silence_s=calls.SILENCE_S)

    # -- commands -------------------------------------------------------------------------------------

    async def run(self, command: Command, *, timeout: float | None = None, check: bool = False,
                  env: Mapping[str, str] | None = None, cwd: Path | None = None, user: Literal["user", "root"] | None = None,
                  input: Body | str | None = None, tty: tuple[int, int] | None = None, merge_output: bool = False,
                  sync: bool = False, free_space: bool = False, key: str | None = None) -> Result:
        """Runs a command to its end, and returns its exit code and output. Starts the sandbox if none runs.

        command     a string for bash, like "make test 2>&1", or a list of words, like ["make", "test"]
        timeout     seconds after which the command is ended; None: the limit of the host's settings
        check       raise CommandFailedError unless it exits with 0
        env         more variables
        cwd         its directory; a relative one is below /workspace, the default
        user        "user" (default) or "root", inside of the sandbox
        input       its standard input: bytes, text, or a file open for reading bytes; None: it has none
        tty         (columns, rows) of a terminal; all output is then in stdout
        merge_output  standard error goes into stdout, in the order of writing
        sync        its files are durable before it counts as ended
        free_space  it frees space, so run it even if the disk is nearly full

        TimeoutError: it exceeded `timeout` and was ended; `result` has its output. Interrupted, a KeyboardInterrupt: Ctrl-C
        here; the command goes on. Both carry `exec_id`. A lost connection is taken up again; the command runs once.
        """
        async with self.stream(command, timeout=timeout, env=env, cwd=cwd, user=user, input=input, tty=tty,
                               merge_output=merge_output, sync=sync, free_space=free_space, key=key) as stream:
            result = await stream.result()
        return result.check() if check else result

    def stream(self, command: Command, *, timeout: float | None = None, env: Mapping[str, str] | None = None,
               cwd: Path | None = None, user: Literal["user", "root"] | None = None, input: Body | str | None = None,
               tty: tuple[int, int] | None = None, merge_output: bool = False, sync: bool = False, free_space: bool = False,
               key: str | None = None) -> AsyncOutputStream:
        """Runs a command and gives its output while it comes; arguments as for run(). Use it in `with`:

            async with workspace.stream("make test") as stream:
                async for chunk in stream:
                    print(chunk.text, end="")
            print(stream.exit_code)
        """
        body = _start_body(command, timeout, env, cwd, user, tty, merge_output, sync, free_space, stdin=input is not None)
        call = Call("POST", self._path + "/execs", {}, json.dumps(body).encode(), calls.JSON, "application/vnd.moorage.output",
                    key=key or "")
        stream = AsyncOutputStream(self._session, start=call, stdin=None if input is None else calls.content_of(input, "input"))
        stream._timeout_s = timeout
        return stream

    async def start_exec(self, command: Command, *, timeout: float | None = None, env: Mapping[str, str] | None = None,
                         cwd: Path | None = None, user: Literal["user", "root"] | None = None, stdin: bool = False,
                         tty: tuple[int, int] | None = None, merge_output: bool = False, sync: bool = False,
                         free_space: bool = False, key: str | None = None) -> AsyncExec:
        """Starts a command and returns at once, with an object to wait for it, read its output or end it.

        stdin: it has a standard input for Exec.write(). The others as for run().
        """
        body = _start_body(command, timeout, env, cwd, user, tty, merge_output, sync, free_space, stdin)
        answer = await self._json("POST", "/execs", body, key=key, silence_s=calls.LONG_SILENCE_S)
        return AsyncExec(self._session, decode(ExecInfo, answer).id)

    async def execs(self, *, running: bool = False, limit: int | None = None, before: str | None = None) -> list[ExecInfo]:
        """Its commands, newest first: at most `limit` (1000) of them. before: only those older than this id."""
        query = {"running": 1 if running else None, "limit": limit, "before": before}
        return decode_list(ExecInfo, await self._json("GET", "/execs", query=query))

    async def history(self, *, limit: int | None = None, before: str | None = None) -> History:
        """Its commands, newest last: at most `limit` (100). They are there after it was stopped or deleted, too."""
        return decode(History, await self._json("GET", "/history", query={"limit": limit, "before": before}))

    # -- life -----------------------------------------------------------------------------------------

    async def start(self, *, key: str | None = None) -> WorkspaceInfo:
        """Starts its sandbox, unless it runs. Commands do that themselves."""
        return await self._changed("POST", "/start", key=key)

    async def sync(self, *, progress: ReportProgress | None = None, key: str | None = None) -> WorkspaceInfo:
        """Brings upstream's newer branches and tags into it, as origin/*; `notice` of the result says what came.

        Rebase or merge inside. UnsupportedError: it came from a checkout. UnavailableError: upstream does not answer.
        """
        self.info = decode(WorkspaceInfo, await self._session.long(self._path + "/sync", None, progress, key))
        return self.info

    async def stop(self, *, hook: bool = True, force: bool = False, wait: float = 0, key: str | None = None) -> WorkspaceInfo:
        """Stops its sandbox; files and history stay. ConflictError names running commands.

        hook: run its pre_stop first; `notice` of the result reports its failure. wait: seconds to wait for running
        commands to end, at most 1500. force: end them.
        """
        body = calls.given(no_hook=not hook or None, force=force or None, wait_ms=round(wait * 1000) or None)
        return await self._changed("POST", "/stop", body or None, key=key, waits_s=wait)

    async def delete(self, *, purge: bool = False, force: bool = False, wait: float = 0, key: str | None = None) -> None:
        """Stops it and marks it deleted: undelete() brings it back. purge: remove its files now, for good.

        force, wait: as for stop().
        """
        query = {"purge": 1 if purge else None, "force": 1 if force else None, "wait_ms": round(wait * 1000) or None}
        await self._json("DELETE", "", query=query, key=key, silence_s=calls.LONG_SILENCE_S, waits_s=wait)

    async def undelete(self, name: str | None = None, *, key: str | None = None) -> WorkspaceInfo:
        """Restores it after delete(), under a new name if given. AlreadyExistsError if its name is in use now."""
        return await self._changed("POST", "/undelete", {"name": name} if name else None, key=key)

    async def update(self, *, limits: Limits | None = None, idle_stop_s: int | None = None, max_lifetime_s: int | None = None,
                     pre_stop: Command | None = None, pre_stop_deadline_s: int | None = None, max_exec_s: int | None = None,
                     max_execs: int | None = None, max_exec_total_s: int | None = None, pinned: bool | None = None,
                     caches: Iterable[str] | None = None, snapshot_before_exec: bool | None = None,
                     snapshot_on_stop: bool | None = None, snapshot_every_s: int | None = None, network: str | None = None,
                     push: Literal["refuse", "ask", "allow"] | None = None, push_refs: Iterable[str] | None = None,
                     name: str | None = None, labels: Mapping[str, str | None] | None = None,
                     key: str | None = None) -> WorkspaceInfo:
        """Changes its policy, name and labels; None leaves a field unchanged. Stops nothing.

        name: AlreadyExistsError if another workspace of its owner has it. labels: None as a value removes one; others stay.
        limits: sizes in bytes. idle_stop_s, max_lifetime_s: seconds; 0: never, -1: as the host's settings say.
        pre_stop: a command before each stop, "" for none; pre_stop_deadline_s: seconds that it may take.
        max_exec_s, max_execs, max_exec_total_s: seconds of a command, commands ever, seconds of all; 0: no limit.
        pinned: gc leaves it alone. caches: paths that gc may remove. snapshot_every_s: seconds while it is busy; 0: never.
        network: "none" or the name of a network of the host. push: pushes of git; push_refs: patterns of allowed refs.
        """
        body = calls.policy_body(
            limits=limits, pre_stop=pre_stop, caches=caches, push_refs=push_refs, idle_stop_s=idle_stop_s,
            max_lifetime_s=max_lifetime_s, pre_stop_deadline_s=pre_stop_deadline_s, max_exec_s=max_exec_s, max_execs=max_execs,
            max_exec_total_s=max_exec_total_s, pinned=pinned, snapshot_before_exec=snapshot_before_exec,
            snapshot_on_stop=snapshot_on_stop, snapshot_every_s=snapshot_every_s, network=network, push=push)
        body |= calls.given(name=name, labels=dict(labels) if labels is not None else None)
        return await self._changed("PATCH", "", body, key=key)

    async def share(self, group: str | None, *, key: str | None = None) -> WorkspaceInfo:
        """Shares it with the members of a host group of the caller; None: private again."""
        return await self._changed("POST", "/share", {"private": True} if group is None else {"group": group}, key=key)

    async def move(self, *, backend: str | None = None, image: str | None = None, runtime: str | None = None, now: bool = False,
                   wait: float = 0, key: str | None = None) -> WorkspaceInfo:
        """Moves it to another backend, image or runtime; files, history and lease stay.

        wait: seconds to wait for running commands, at most 60; now: cancel them. ConflictError if they still run.
        """
        body = calls.given(backend=backend, image=image, runtime=runtime, now=now, wait_ms=round(wait * 1000))
        return await self._changed("POST", "/move", body, key=key, waits_s=wait)

    async def check_move(self, *, backend: str | None = None, image: str | None = None, runtime: str | None = None) -> MoveCheck:
        """What move() would do. Refused as the move itself would be; changes nothing."""
        body = calls.given(backend=backend, image=image, runtime=runtime)
        return decode(MoveCheck, await self._json("POST", "/move/check", body))

    async def archive(self, *, progress: ReportProgress | None = None, key: str | None = None) -> WorkspaceInfo:
        """Archives it into one verified file; the next command or start unarchives it. May take minutes."""
        self.info = decode(WorkspaceInfo, await self._session.long(self._path + "/archive", None, progress, key))
        return self.info

    async def unarchive(self, *, progress: ReportProgress | None = None, key: str | None = None) -> WorkspaceInfo:
        """Restores its files from the archive. CorruptedError names a damaged entry, and nothing changes."""
        self.info = decode(WorkspaceInfo, await self._session.long(self._path + "/unarchive", None, progress, key))
        return self.info

    async def export(self, to: BinaryIO, *, snapshots: bool = True) -> int:
        """Writes it as an archive for another host to a file open for writing bytes. Returns the number of bytes.

        UnknownOutcomeError if it is cut off; the file is then useless. Client.import_workspace() reads it.
        """
        size = 0
        call = Call("GET", self._path + "/export", {"without_snapshots": None if snapshots else 1}, accept="*/*",
                    silence_s=calls.LONG_SILENCE_S)
        async for piece in self._session.pieces(call):
            size += to.write(piece)
        return size

    async def objects(self, to: BinaryIO) -> int:
        """Writes the objects that its .git takes from the host, as a pack for `git index-pack --stdin`, to a file open for
        writing bytes. Returns the number of bytes. A copy of its .git elsewhere needs them.
        """
        size = 0
        call = Call("GET", self._path + "/objects", accept="*/*", silence_s=calls.LONG_SILENCE_S)
        async for piece in self._session.pieces(call):
            size += to.write(piece)
        return size

    # -- changes --------------------------------------------------------------------------------------

    async def diff(self, base: Literal["work", "head"] = "work", paths: Sequence[Path] = ()) -> Patch:
        """Its changes since it was created, as a patch for `git apply --binary`; its `left_out` lists what it lacks.

        base: "head" compares with the commit where its branch began, so uncommitted work of its checkout is in the patch.
        paths: only these files and directories, relative to /workspace.
        """
        query = {"base": base, "path": paths}
        return Patch(await self._session.whole(self._path + "/diff", query, silence_s=calls.LONG_SILENCE_S))

    async def diff_stat(self, base: Literal["work", "head"] = "work", paths: Sequence[Path] = ()) -> list[DiffStat]:
        """The same as numbers of lines, file by file."""
        query = {"stat": 1, "base": base, "path": paths}
        return decode_list(DiffStat, await self._json("GET", "/diff", query=query, silence_s=calls.LONG_SILENCE_S))

    async def base_file(self, path: Path) -> bytes:
        """A file at the creation of the workspace, at most 64 MiB; of a link its target. path: relative to /workspace."""
        return await self._session.whole(self._path + "/base", {"path": path}, silence_s=calls.LONG_SILENCE_S)

    async def status(self) -> Status:
        """Changed and untracked files."""
        return decode(Status, await self._json("GET", "/status", silence_s=calls.LONG_SILENCE_S))

    async def compare(self, other: str) -> Comparison:
        """Differences from it to another workspace (name or id) of the same repository, file by file."""
        return decode(Comparison, await self._json("GET", "/compare", query={"with": other}, silence_s=calls.LONG_SILENCE_S))

    async def compare_patch(self, other: str) -> Patch:
        """The same as a patch for `git apply --binary`; its `left_out` lists what it lacks."""
        return Patch(await self._session.whole(self._path + "/compare", {"with": other, "patch": 1}, calls.LONG_SILENCE_S))

    # -- snapshots and forks --------------------------------------------------------------------------

    async def snapshot(self, name: str | None = None, *, external_id: str | None = None, key: str | None = None) -> Snapshot:
        """Takes a snapshot; running processes pause for a moment. external_id: its name in another program."""
        body = calls.given(name=name, external_id=external_id)
        return decode(Snapshot, await self._json("POST", "/snapshots", body, key=key, silence_s=calls.LONG_SILENCE_S))

    async def snapshots(self) -> list[Snapshot]:
        """Its kept snapshots, oldest first."""
        return decode_list(Snapshot, (await self._json("GET", "/snapshots"))["snapshots"])

    async def get_snapshot(self, snapshot: str) -> Snapshot:
        """One of its snapshots, by id or name."""
        return decode(Snapshot, await self._json("GET", f"/snapshots/{segment(snapshot)}"))

    async def drop_snapshot(self, snapshot: str, *, key: str | None = None) -> None:
        """Drops a snapshot, by id or name. Forks and later snapshots are unaffected."""
        await self._json("DELETE", f"/snapshots/{segment(snapshot)}", key=key)

    async def restore(self, snapshot: str, *, kill: bool = False, key: str | None = None) -> WorkspaceInfo:
        """Restores a snapshot, by id or name; the previous state becomes a snapshot. kill: end running commands for it."""
        return await self._changed("POST", "/restore", {"snapshot": snapshot, "kill": kill}, key=key)

    async def undo(self, exec_id: str | None = None, *, kill: bool = False, key: str | None = None) -> WorkspaceInfo:
        """Restores the state before a command, by default the last one not undone; needs snapshot_before_exec."""
        return await self._changed("POST", "/undo", calls.given(exec=exec_id, kill=kill), key=key)

    async def fork(self, count: int = 1, *, names: Iterable[str] | None = None, snapshot: str | None = None,
                   labels: Mapping[str, str] | None = None, key: str | None = None) -> list[AsyncWorkspace]:
        """Creates workspaces from its state, or from a snapshot: all of them, or none. It keeps running.

        names: of the forks, instead of count; else NAME-1, NAME-2... At most 100.
        """
        body: dict[str, Any] = {"count": count} if names is None else {"names": list(names)}
        body |= calls.given(snapshot=snapshot, labels=None if labels is None else dict(labels))
        answer = await self._json("POST", "/fork", body, key=key, silence_s=calls.LONG_SILENCE_S)
        return [AsyncWorkspace(self._session, info) for info in decode_list(WorkspaceInfo, answer["workspaces"])]

    async def promote(self, *, kill: bool = False, key: str | None = None) -> WorkspaceInfo:
        """Replaces the contents of the workspace that it was forked from with its own. Takes a snapshot of both first.

        kill: end running commands of the origin. Returns the record of the origin.
        """
        answer = await self._json("POST", "/promote", {"kill": kill}, key=key, silence_s=calls.LONG_SILENCE_S)
        return decode(WorkspaceInfo, answer)

    async def tree(self) -> Lineage:
        """Its related snapshots and forks."""
        return decode(Lineage, await self._json("GET", "/tree"))

    # -- best of several attempts ---------------------------------------------------------------------

    async def best_of(self, test: Command, *, each: Command | None = None, count: int | None = None,
                      patches: Iterable[tuple[str, bytes]] | None = None, timeout: float | None = None,
                      promote: Literal["first-passing", "smallest-diff"] | None = None, parallel: int | None = None,
                      keep: bool = False, key: str | None = None) -> BestOf:
        """Begins several attempts, each in a fork: `each` runs there ({i} is the number), or one of `patches`, (name, patch),
        is applied; then `test` runs.

        timeout: seconds of each command. promote: which passed attempt replaces the workspace's contents. parallel:
        attempts at once; None: one for each CPU. keep: leave the sandboxes of ended attempts running. Returns at once, the
        daemon goes on by itself: Client.best_of(id, wait=60) shows the progress.
        """
        body = calls.given(count=count, timeout_ms=None if timeout is None else calls.milliseconds(timeout), promote=promote,
                           parallel=parallel, keep=keep)
        for name, command in (("test", test), ("each", each)):
            if isinstance(command, str):
                body[name] = command
            elif command is not None:
                put_words(body, name, command)
        if patches is None:
            return decode(BestOf, await self._json("POST", "/best-of", body, key=key, silence_s=calls.LONG_SILENCE_S))
        listed = list(patches)
        body["patches"] = []
        for name, patch in listed:
            one: dict[str, Any] = {"bytes": len(patch)}
            put_text(one, "name", name)
            body["patches"].append(one)
        head = json.dumps(body).encode()
        call = Call("POST", self._path + "/best-of", {"json_bytes": len(head)}, head + b"".join(patch for _, patch in listed),
                    key=key or "", silence_s=calls.LONG_SILENCE_S)
        return decode(BestOf, json.loads((await self._session.request(call))[1]))

    async def best_ofs(self) -> list[BestOf]:
        """Its newest 50 best-ofs, newest first."""
        return decode_list(BestOf, (await self._json("GET", "/best-of"))["best_of"])

    # -- the network ----------------------------------------------------------------------------------

    async def network(self) -> Network:
        """The rules of its network, and what its running sandbox uses."""
        return decode(Network, await self._json("GET", "/network"))

    async def change_network(self, *, allow: Iterable[str] = (), deny: Iterable[str] = (), forget: Iterable[str] = (),
                             key: str | None = None) -> WorkspaceInfo:
        """Adds rules for hosts, or forgets them; they apply to running commands at once. Its owner and root only.

        Hosts are like "github.com", "github.com:22", ".github.com", "packages.example.com GET,HEAD" or
        "https://example.com/simple/ GET".
        """
        body: dict[str, Any] = {}
        for name, hosts in (("allow", list(allow)), ("deny", list(deny)), ("forget", list(forget))):
            if hosts:
                put_words(body, name, hosts)
        return await self._changed("POST", "/network", body, key=key)

    async def check_network(self, host: str) -> NetworkCheck:
        """Whether a host may be reached, by which rule, and what a program inside would read.

        host: like "github.com:22" or "https://api.example.com/v1/ POST".
        """
        return decode(NetworkCheck, await self._json("GET", "/network/check", query={"host": host}))

    async def approvals(self, *, all: bool = False) -> list[Approval]:
        """Its pushes that wait for an approval or have one, newest first. all: used, refused and expired ones, too."""
        answer = await self._session.json("GET", "/approvals", query={"workspace": self.id, "all": 1 if all else None})
        return decode_list(Approval, answer["approvals"])

    # -- the writer lease -----------------------------------------------------------------------------

    def lease(self, holder: str, *, ttl_s: int = 60, takeover: bool = False, keep_execs: bool = False) -> AsyncHeldWorkspace:
        """The workspace under a lease, to use in `with`: meanwhile nobody else changes it or runs commands in it.

            async with workspace.lease("agent-7") as held:
                await held.run("make test")

        holder: a name that others see. ttl_s: seconds without a heartbeat after which the lease lapses, 5 to 3600; one is
        sent three times as often. takeover: take it from another holder, whose commands end unless keep_execs.
        ConflictError while another holder has it, or a command runs without a lease.
        """
        return AsyncHeldWorkspace(self._session, self.info, holder, ttl_s, takeover, keep_execs)

    async def lease_info(self) -> Lease:
        """Its current or last lease."""
        return decode(Lease, await self._json("GET", "/lease"))

    async def acquire_lease(self, holder: str, *, ttl_s: int = 60, takeover: bool = False, keep_execs: bool = False,
                            key: str | None = None) -> Lease:
        """As lease(), but by hand: pass the result's `token` to another Client(lease=...), and send heartbeats there."""
        body = {"holder": holder, "ttl_s": ttl_s, "takeover": takeover, "keep_execs": keep_execs}
        return decode(Lease, await self._json("POST", "/lease", body, key=key, silence_s=calls.LONG_SILENCE_S))

    async def heartbeat(self) -> Lease:
        """Extends the lease whose token this client has. ConflictError once it has ended."""
        return decode(Lease, await self._json("PUT", "/lease"))

    async def release_lease(self, *, key: str | None = None) -> None:
        """Ends the lease whose token this client has. Running commands continue."""
        await self._json("DELETE", "/lease", key=key)


class AsyncHeldWorkspace(AsyncWorkspace):
    """A workspace whose lease this program holds inside `with`, where heartbeats keep it.

    lost         True once the lease has ended: another holder took it, or it lapsed. Changes then raise ConflictError
    generation   of the lease
    """

    def __init__(self, session: AsyncSession, info: WorkspaceInfo, holder: str, ttl_s: int, takeover: bool,
                 keep_execs: bool) -> None:
        super().__init__(session.with_lease(None), info)
        self._holder, self._ttl_s, self._takeover, self._keep_execs = holder, ttl_s, takeover, keep_execs
        self._ticker: Ticker | None = None
        self.lost = False
        self.generation = 0

    async def __aenter__(self) -> AsyncHeldWorkspace:
        try:
            lease = await self.acquire_lease(self._holder, ttl_s=self._ttl_s, takeover=self._takeover,
                                             keep_execs=self._keep_execs)
        except BaseException:
            self._session.close()
            raise
        self._session.lease, self.generation, self.lost = lease.token, lease.generation, False
        self._ticker = Ticker(self._ttl_s / 3, self._beat)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self._ticker is not None:
            await self._ticker.stop()
        try:
            await self.release_lease()
        except (ConflictError, NotFoundError):
            pass  # the lease has ended, or the workspace is gone
        except MoorageError:
            if error is None:
                raise  # else what happened inside matters more, and the lease lapses
        finally:
            self._session.lease = None
            self._session.close()

    async def _beat(self) -> bool:
        try:
            await self.heartbeat()
        except (ConflictError, NotFoundError):
            self.lost = True
            return False
        except (MoorageError, OSError):
            pass  # the daemon restarts, and no lease lapses during a restart
        return True


def _start_body(command: Command, timeout: float | None, env: Mapping[str, str] | None, cwd: Path | None, user: str | None,
                tty: tuple[int, int] | None, merge_output: bool, sync: bool, free_space: bool, stdin: bool) -> dict[str, Any]:
    body = calls.given(timeout_ms=None if timeout is None else calls.milliseconds(timeout), user=user,
                       env=None if env is None else dict(env), tty=None if tty is None else {"columns": tty[0], "rows": tty[1]},
                       merge_output=merge_output or None, sync=sync or None, free_space=free_space or None, stdin=stdin or None)
    put_words(body, "argv", calls.argv_of(command))
    if cwd is not None:
        put_text(body, "cwd", os.path.join(b"/workspace", calls.raw_path(cwd, "cwd")))
    return body


async def collect(items: AsyncIterator[AsyncWorkspace]) -> list[AsyncWorkspace]:
    found = []
    async for item in items:
        found.append(item)
    return found
