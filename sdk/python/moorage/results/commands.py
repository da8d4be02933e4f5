"""Records of commands, and results with their output."""

from __future__ import annotations

import dataclasses
import datetime

from ..errors import CommandFailedError
from .record import Record


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ExecInfo(Record):
    """The record of a command. Durations are milliseconds, sizes bytes. `state` is running, exited, signalled, timed_out,
    oom_killed, cancelled or interrupted; `category` says more about a failure (docs/openapi.yaml, ExecCategory).
    """

    id: str
    workspace: str
    state: str
    argv: tuple[str, ...] = ()
    cwd: str = ""
    owner: int | None = None
    owner_name: str | None = None
    user: str = ""
    sandbox: str | None = None
    tty: bool = False
    stdin: bool = False
    merge_output: bool = False
    exit_code: int | None = None
    signal: int | None = None
    category: str | None = None
    error: str | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    last_output_at: datetime.datetime | None = None
    output_bytes: int | None = None
    omitted_bytes: int | None = None
    late_bytes: int | None = None
    timeout_ms: int | None = None
    user_ms: int | None = None
    system_ms: int | None = None
    max_rss_bytes: int | None = None
    hook: str | None = None
    cancel_requested: bool = False
    imported_from: str | None = None
    changed_files: int | None = None
    stdin_accepted: int | None = None
    stdin_read: int | None = None
    idempotency_key: str | None = None

    @property
    def running(self) -> bool:
        """Whether it had not ended when this was read."""
        return self.state == "running"

    @property
    def status(self) -> int:
        """How it ended, as a shell shows it: see Result.exit_code. 0 while it runs."""
        if self.state in ("running", "exited"):
            return self.exit_code or 0
        if self.state == "signalled":
            return 128 + (self.signal or 0)
        return {"timed_out": 124, "cancelled": 130, "oom_killed": 137}.get(self.state, 125)

    @property
    def outcome(self) -> str:
        """Its state in words, like "exited with 2", with the reason if there is one. For people."""
        words = {"exited": f"exited with {self.exit_code}", "signalled": f"was ended by signal {self.signal}",
                 "timed_out": "exceeded its time limit", "oom_killed": "exceeded its memory"}.get(self.state, self.state)
        return words + (f" ({self.error})" if self.error else "")


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class HistoryWorkspace(Record):
    """The workspace of a history."""

    id: str
    name: str = ""
    state: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class History(Record):
    """Commands of a workspace, newest last. truncated: older ones exist; pass the first id as `before`.

    total: commands of the workspace, also those that are not in `execs`.
    """

    workspace: HistoryWorkspace
    execs: tuple[ExecInfo, ...]
    truncated: bool
    total: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A command that ended, with its output.

    exec: its record. stdout_bytes, stderr_bytes: the output as bytes; a command with a terminal has all in stdout.
    gaps: output that was not kept, as (offset of the first missing byte, of the next kept one), counted in both streams
    together. truncated: it wrote more than the host keeps; the rest was dropped.
    """

    exec: ExecInfo
    stdout_bytes: bytes
    stderr_bytes: bytes
    gaps: tuple[tuple[int, int], ...] = ()
    truncated: bool = False

    def __repr__(self) -> str:
        return (f"<Result {self.exec_id} {self.exec.outcome}, {len(self.stdout_bytes)} bytes of stdout, "
                f"{len(self.stderr_bytes)} of stderr>")

    @property
    def exec_id(self) -> str:
        """The id of the command, like "ex_5"."""
        return self.exec.id

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exec.state == "exited" and self.exec.exit_code == 0

    @property
    def exit_code(self) -> int:
        """Its exit code; 128 + N: ended by signal N, 124: exceeded its time limit, 125: was interrupted or did not start,
        130: canceled, 137: exceeded its memory. `exec` tells these apart from a command's own exit codes."""
        return self.exec.status

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stderr_bytes.decode(errors="replace")

    def check(self) -> Result:
        """This result, if the command exited with 0; otherwise CommandFailedError, with the end of its output."""
        if self.ok:
            return self
        command = " ".join(self.exec.argv)
        tail = (self.stderr or self.stdout).strip()[-1000:]
        shown = command if len(command) <= 200 else command[:200] + "..."
        raise CommandFailedError(f"{self.exec_id} {self.exec.outcome}: {shown}" + (f"\n{tail}" if tail else ""), result=self)
