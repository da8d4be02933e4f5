"""HTTP/1.1 as bytes: a request's head, and a parser of answers that is fed what arrives. No sockets here.

Both clients use it, so they speak the same protocol. The daemon's answers have a length, come in chunks, or end with the
connection (RFC 9112, section 6).
"""

from __future__ import annotations

import dataclasses
import os
import urllib.parse
from collections.abc import Mapping, Sequence

MAX_HEAD_BYTES = 256 << 10

QueryValue = str | int | bool | bytes
Query = Mapping[str, QueryValue | Sequence[str | bytes] | None]


class CutOff(Exception):
    """The connection ended, or fell silent, before the whole answer arrived. Internal: callers get a MoorageError."""


def segment(name: str) -> str:
    """A name as one segment of a path, whatever characters it has."""
    if name in ("", ".", ".."):  # such a segment would name another object
        raise ValueError(f"not a name: {name!r}")
    return urllib.parse.quote(os.fsencode(name), safe="")


def target(path: str, query: Query | None = None) -> str:
    """The target of a request. Values of the query: None is left out, True is 1, False 0, bytes may be any, lists repeat it."""
    pairs = []
    for name, value in (query or {}).items():
        if value is None:
            continue
        for one in [value] if isinstance(value, (str, bytes, int)) else value:
            if isinstance(one, bool):
                one = int(one)
            raw = one if isinstance(one, bytes) else os.fsencode(str(one))
            pairs.append(f"{name}={urllib.parse.quote(raw, safe='')}")
    return path + ("?" + "&".join(pairs) if pairs else "")


def request_head(method: str, path: str, headers: Sequence[tuple[str, str]]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    for name, value in headers:
        if any(c in value for c in "\r\n\0"):
            raise ValueError(f"{name} has a line break: {value!r}")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@dataclasses.dataclass(frozen=True)
class Head:
    """Status and headers of an answer; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class AnswerParser:
    """Feed it bytes; take the head and the body's bytes out. `complete` once the whole answer was fed."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.complete = False
        self._buffer = b""
        self._body: list[bytes] = []
        self._left: int | None = None  # of the body, or of this chunk; None: until the connection ends
        self._chunked = False
        self._in_trailer = False

    def feed(self, data: bytes) -> None:
        if not data:
            self._end()
            return
        self._buffer += data
        while self._step():
            pass

    def take(self) -> bytes:
        """The bytes of the body since the last call."""
        taken, self._body = b"".join(self._body), []
        return taken

    def _end(self) -> None:
        if self.complete:
            return
        if self.head is None or self._chunked or self._left is not None:
            raise CutOff("the answer was cut off")
        self.complete = True

    def _step(self) -> bool:
        """Parses one piece of the buffer; False: it needs more bytes."""
        if self.complete:
            return False
        if self.head is None:
            return self._read_head()
        if self._left is None and self._chunked:
            return self._read_chunk_head()
        return self._read_body()

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise CutOff("the answer's head is too long")
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        self._buffer = self._buffer[end + 4:]
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise CutOff("the answer is not HTTP")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(words[1])
        if 100 <= status < 200:
            return True  # 100 Continue: the answer follows
        self.head = Head(status, headers)
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        if status in (204, 304):
            self.complete = True
        elif not self._chunked and "content-length" in headers:
            if not headers["content-length"].isdigit():
                raise CutOff("the answer has no valid length")
            self._left = int(headers["content-length"])
            self.complete = self._left == 0
        return True

    def _read_chunk_head(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        line, self._buffer = self._buffer[:end], self._buffer[end + 2:]
        if self._in_trailer:
            self.complete = not line
            return bool(line)
        if not line:  # after the bytes of a chunk
            return True
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise CutOff("the answer has a malformed chunk") from None
        if size == 0:
            self._in_trailer = True
        else:
            self._left = size
        return True

    def _read_body(self) -> bool:
        if not self._buffer:
            return False
        piece = self._buffer if self._left is None else self._buffer[:self._left]
        self._buffer = self._buffer[len(piece):]
        self._body.append(piece)
        if self._left is not None:
            self._left -= len(piece)
            if self._left == 0:
                self._left = None
                self.complete = not self._chunked
        return True
