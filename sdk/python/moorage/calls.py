"""What both clients send, and when they send it again. No sockets here.

A change carries an Idempotency-Key, the same in each repeat, so the daemon runs it once and answers a repeat with the
first result. An answer is final, with these exceptions: too many connections (429), a daemon that says when to come back
(Retry-After), and a repeat that finds the first request still in progress.
"""

from __future__ import annotations

import dataclasses
import io
import math
import numbers
import os
import time
import urllib.parse
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from .decode import put_words
from .errors import ConflictError, InvalidArgumentError, MoorageError
from .http1 import Head, Query
from .results import Limits

DEFAULT_SOCKET = "/run/moorage/mooraged.sock"
JSON, BYTES, NDJSON = "application/json", "application/octet-stream", "application/x-ndjson"

SILENCE_S = 120.0  # of an ordinary call
LONG_SILENCE_S = 1800.0  # of one that may clone, copy or wait
STREAM_SILENCE_S = 90.0  # keep-alives come more often: longer silence means a dead connection
PATIENCE_S = 30.0  # for a daemon that was lost in the middle of a call
RECONNECT_S = 600.0  # for one that was lost while a command runs
PIECE_BYTES = 1 << 20

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0

Body = bytes | BinaryIO
Command = str | Iterable[str | bytes]
Path = str | os.PathLike[str]


@dataclasses.dataclass
class Call:
    """One request. key: "" for a read, which needs none. silence_s: seconds without a byte; None: forever."""

    method: str
    path: str
    query: Query = dataclasses.field(default_factory=dict)
    body: Body | None = None
    content_type: str = BYTES
    accept: str = JSON
    headers: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    key: str = ""
    silence_s: float | None = SILENCE_S
    waits_s: float = 0  # that the daemon was asked to wait, on top of the silence
    is_stream: bool = False  # its silence is that of keep-alives, whatever the client's timeout is
    root: str = "/v1"
    exec_id: str | None = None
    lost: bool = dataclasses.field(default=False, init=False)  # sent once, without an answer
    _start: int | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.method != "GET" and not self.key:
            self.key = uuid.uuid4().hex

    def all_headers(self, lease: str | None) -> list[tuple[str, str]]:
        headers = [("Accept", self.accept)]
        if lease:  # reads need none, but an export may stop commands
            headers.append(("Moorage-Lease", lease))
        if self.key:
            headers.append(("Idempotency-Key", self.key))
        headers += [(name, value) for name, value in self.headers.items() if value is not None]
        if isinstance(self.body, bytes):
            headers += [("Content-Type", self.content_type), ("Content-Length", str(len(self.body)))]
        elif self.body is not None:
            headers += [("Content-Type", self.content_type), ("Transfer-Encoding", "chunked")]
        elif self.method != "GET":
            headers.append(("Content-Length", "0"))
        return headers

    def rewind(self) -> bool:
        """Prepares the body for the next attempt. False: it was read and cannot be read again."""
        if self.body is None or isinstance(self.body, bytes):
            return True
        if self._start is None:
            self._start = self.body.tell() if self.body.seekable() else -1
            return True
        if self._start < 0:
            return False
        self.body.seek(self._start)
        return True


def comes_later(head: Head) -> bool:
    """Whether the request was refused before it began, and the same may be sent again."""
    return head.status == 429 or (head.status == 503 and head.header("Retry-After") is not None)


def is_in_progress(call: Call, error: MoorageError) -> bool:
    """Whether a repeat found that the first request, whose answer was lost, still runs."""
    return call.lost and isinstance(error, ConflictError) and "idempotency key is in progress" in error.message


def retry_after_s(head: Head) -> float | None:
    """The seconds of Retry-After; None without it, or for a date, which the daemon never sends."""
    text = head.header("Retry-After")
    return float(text) if text is not None and text.isdecimal() else None


class Backoff:
    """Growing pauses of at most a second, for a limited time since the first failure."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.reset()

    def reset(self) -> None:
        self._began: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def pause(self, at_least_s: float | None = None) -> float | None:
        """Seconds to sleep before the next attempt; None: give up."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        pause_s = max(self._pause_s, at_least_s or 0.0)
        if now - self._began + (at_least_s or 0.0) >= self._patience_s:
            return None
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return pause_s


def socket_path(given: Path | None) -> str:
    return os.fspath(given or os.environ.get("MOORAGE_SOCKET") or DEFAULT_SOCKET)


def reconnect_s(given: float | None) -> float:
    if given is not None:
        seconds_of(given, "reconnect_s")
        return given
    text = os.environ.get("MOORAGE_RECONNECT_S", "")
    return float(text) if text.isdecimal() and int(text) > 0 else RECONNECT_S


def lease_token(socket: str, given: str | None) -> str | None:
    """The token to send. "ws_12.5" names one that `moorage lease acquire` saved for this user."""
    named = given or os.environ.get("MOORAGE_LEASE")
    if not named or named.count(".") != 1 or "/" in named:
        return named or None
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    try:
        with open(os.path.join(state, "moorage/leases", urllib.parse.quote(socket, safe=""), named)) as kept:
            return kept.readline().strip()
    except OSError:
        return named  # the daemon explains the problem


def argv_of(command: Command) -> list[str | bytes]:
    """A string is for bash; a list of words needs no shell."""
    if isinstance(command, bytes):
        raise TypeError("a command is a string for the shell, or a list of words")
    return ["bash", "-c", command] if isinstance(command, str) else list(command)


def command_text(command: Command) -> str | list[str]:
    """The same where the daemon accepts both; all must be text."""
    return command if isinstance(command, str) else [os.fsdecode(word) for word in command]


def raw_path(path: Path | bytes, name: str = "path") -> bytes:
    """name: of the parameter, for the refusal."""
    try:
        raw = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{name} must be a string or a path, not {path!r}") from None
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{name} cannot be the name of a file: {path!r}") from None
    if b"\0" in raw:
        raise InvalidArgumentError(f"{name} has a null character: {path!r}")
    return raw


def raw_file_path(path: Path | bytes, name: str = "path") -> bytes:
    """The same for one that must not be empty."""
    raw = raw_path(path, name)
    if not raw:
        raise InvalidArgumentError(f"{name} is empty")
    return raw


def text_path(path: Path | bytes, name: str = "path") -> str:
    """As from os.fsdecode."""
    return os.fsdecode(raw_path(path, name))


def mode_text(mode: int | None) -> str | None:
    if mode is None:
        return None
    if isinstance(mode, bool) or not isinstance(mode, numbers.Integral):
        raise TypeError(f"mode must be an integer like 0o644, not {mode!r}")
    if not 0 <= mode <= 0o777:
        raise InvalidArgumentError(f"mode must be permission bits from 0 to 0o777, not {mode:#o}")
    return f"{mode:04o}"


def content_of(content: Body | str, name: str) -> Body:
    """Text becomes UTF-8."""
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, (bytearray, memoryview)):
        return bytes(content)
    if isinstance(content, io.TextIOBase) or not (isinstance(content, bytes) or hasattr(content, "read")):
        raise TypeError(f"{name} must be bytes, text or a file open for reading bytes, not {content!r}")
    return content


def seconds_of(seconds: float | None, name: str) -> float | None:
    """The same, or TypeError."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")
    return seconds


def milliseconds(seconds: float) -> int:
    """A time limit. ValueError unless it is more than 0, which would mean the limit of the settings."""
    seconds_of(seconds, "timeout")
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout must be more than 0 seconds, not {seconds!r}; None: no limit of this call")
    return max(1, round(seconds * 1000))


def given(**fields: Any) -> dict[str, Any]:
    """A request's body: the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def policy_body(*, caches: Iterable[str] | None, limits: Limits | None, pre_stop: Command | None,
                push_refs: Iterable[str] | None, labels: Mapping[str, str] | None = None, **plain: Any) -> dict[str, Any]:
    """The fields that create() and update() have in common."""
    body = given(**plain)
    if labels is not None:
        body["labels"] = dict(labels)
    if push_refs is not None:
        body["push_refs"] = list(push_refs)
    if limits is not None:
        names = [field.name for field in dataclasses.fields(limits) if field.name != "raw"]
        body["limits"] = given(**{name: getattr(limits, name) for name in names})
    if caches is not None:
        put_words(body, "caches", caches)
    if isinstance(pre_stop, str):
        body["pre_stop"] = pre_stop
    elif pre_stop is not None:
        put_words(body, "pre_stop", pre_stop)
    return body
