"""The output of a command as records (GET /v1/execs/{exec}/output in docs/openapi.yaml). No sockets here.

OutputParser is fed bytes and gives chunks of output. It outlives connections: `offset` is where the next one must
continue, and bytes that arrive twice are dropped.
"""

from __future__ import annotations

import codecs
import dataclasses
import json
import struct
from typing import Any, Literal

from .decode import decode
from .errors import CorruptedError, error_for
from .results import ExecInfo

OUTPUT_TYPE = "application/vnd.moorage.output"
STDOUT, STDERR, TERMINAL, KEEP_ALIVE, LIMIT, END, POSITION, ERROR = range(1, 9)

ChannelName = Literal["stdout", "stderr", "terminal"]
_CHANNELS: dict[int, ChannelName] = {STDOUT: "stdout", STDERR: "stderr", TERMINAL: "terminal"}
_HEADER = struct.Struct(">B3xI")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A piece of output.

    channel: "stdout", "stderr", or "terminal" for a command with one. data: the bytes. text: the same as text, without
    a character that is still incomplete; the next chunk of the channel has it. Bytes that are not UTF-8 become U+FFFD.
    late: written by processes that the command left behind, after its end.
    """

    channel: ChannelName
    data: bytes
    text: str
    late: bool = False


class OutputParser:
    """State of one followed output, across connections."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.gaps: tuple[tuple[int, int], ...] = ()
        self.end: ExecInfo | None = None
        self.truncated = False
        self.notices: list[str] = []
        self.failed: Exception | None = None
        self._buffer = bytearray()
        self._skip = 0
        self._late = False
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in _CHANNELS.values()}

    def begin(self) -> None:
        """A new connection. Drops the incomplete record of the former; later, output before `offset`."""
        self._buffer.clear()
        self._skip = 0

    def feed(self, data: bytes) -> list[Chunk]:
        """The output in `data`. An error that the daemon reports is kept in `failed` until this output was taken."""
        self._buffer += data
        chunks = []
        at = 0
        while self.end is None and self.failed is None and len(self._buffer) - at >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._buffer, at)
            if len(self._buffer) - at < _HEADER.size + size:
                break
            begin = at + _HEADER.size
            payload = bytes(self._buffer[begin:begin + size])
            at = begin + size
            chunk = self._take(kind, payload)
            if chunk is not None:
                chunks.append(chunk)
        del self._buffer[:at]
        return chunks

    def _take(self, kind: int, payload: bytes) -> Chunk | None:
        if kind in _CHANNELS:
            return self._output(_CHANNELS[kind], payload)
        if kind == POSITION:
            self._position(_json(payload))
        elif kind == END:
            self.end = decode(ExecInfo, _json(payload))
        elif kind == ERROR:
            fields = _json(payload)
            self.failed = error_for(fields.get("code", "internal"), fields.get("message", ""), fields.get("hint", ""))
        elif kind == LIMIT:
            self.truncated = True
        elif kind == KEEP_ALIVE and payload:
            self.note(_json(payload).get("notice", ""))
        return None

    def note(self, notice: str | None) -> None:
        if notice and notice not in self.notices:
            self.notices.append(notice)

    def _output(self, channel: ChannelName, payload: bytes) -> Chunk | None:
        skipped = min(self._skip, len(payload))
        self._skip -= skipped
        payload = payload[skipped:]
        if not payload:
            return None
        self.offset += len(payload)
        return Chunk(channel, payload, self._decoders[channel].decode(payload), self._late)

    def _position(self, place: dict[str, Any]) -> None:
        position = int(place["offset"])
        self._late = self._late or "late_at" in place
        if position < self.offset:
            self._skip = self.offset - position
            return
        self._skip = 0
        if position > self.offset:
            self.gaps += ((self.offset, position),)
        self.offset = position


def _json(payload: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(payload)
    except ValueError as error:
        raise CorruptedError(f"a record of the output is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CorruptedError("a record of the output is not an object")
    return fields
