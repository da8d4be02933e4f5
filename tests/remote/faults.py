"""Faults of a fake provider, scripted by a test: which requests meet them, and what happens then.

A fault waits for `count` requests (None: all) whose method and path match, after `skip` others that match too.
`kind`:
  status        answers `status` with `body`, and Retry-After if `retry_after_s` is given; the request has no effect
  refuse        closes the connection unanswered; the request has no effect
  stall         never answers; the request has no effect
  lost_answer   the request takes effect, but its connection is closed instead of an answer (`stall`: and stays open)
  late          closes the connection unanswered; the request takes effect `delay_s` later
  cut           the connection is reset after `bytes` bytes of the answer's body or WebSocket stream
  slow          the answer's body comes at `bytes_per_s`
  delay         the request is handled `delay_s` late

Beside them the fake itself has: `lies` {sandbox id: state that is said}, `skew_s` of the provider's clock, and
`lose_files_at_resume`, the number of the resume after which changes since the first pause are gone (0: never).
All can be set in this process or over HTTP: POST /_fake/faults with a JSON object (fields of Fault), DELETE to end
all; POST /_fake/set {"skew_s", "lose_files_at_resume", "lies"}; POST /_fake/die {"id"} ends a machine behind the
provider's back; GET /_fake/requests lists what was received.
"""

import asyncio
import dataclasses
import re
import threading

KINDS = ("status", "refuse", "stall", "lost_answer", "late", "cut", "slow", "delay")


@dataclasses.dataclass
class Fault:
    kind: str
    method: str = ".*"
    path: str = ".*"  # a regular expression for the whole path, without the query
    count: int | None = 1
    skip: int = 0
    status: int = 500
    retry_after_s: float | None = None
    body: dict | list | None = None
    stall: bool = False
    bytes: int = 0
    bytes_per_s: int = 1024
    delay_s: float = 0
    met: int = 0

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; known: {', '.join(KINDS)}")

    def matches(self, method, path):
        return bool(re.fullmatch(self.method, method) and re.fullmatch(self.path, path))


class Faults:
    """Thread-safe. The first fault that matches is the one that a request meets."""

    def __init__(self):
        self.lock = threading.Lock()
        self.clear()

    def clear(self):
        with self.lock:
            self.all = []
            self.lies = {}
            self.skew_s = 0
            self.lose_files_at_resume = 0

    def add(self, kind, **fields):
        fault = Fault(kind, **fields)
        with self.lock:
            self.all.append(fault)
        return fault

    def set(self, **fields):
        for name, value in fields.items():
            if name not in ("lies", "skew_s", "lose_files_at_resume"):
                raise ValueError(f"unknown setting {name!r}")
            setattr(self, name, value)

    def take(self, method, path):
        with self.lock:
            for fault in self.all:
                if not fault.matches(method, path):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                if fault.count is not None and fault.met >= fault.count:
                    continue
                fault.met += 1
                return fault
        return None


class Cut(ConnectionError):
    """A fault ends this connection."""


class Output:
    """What writes an answer's body: cuts it, or slows it down."""

    def __init__(self, writer, fault):
        self.writer, self.fault = writer, fault
        self.left = fault.bytes if fault and fault.kind == "cut" else None
        self.rate = fault.bytes_per_s if fault and fault.kind == "slow" else None

    async def write(self, data):
        if self.left is not None and len(data) >= self.left:
            self.writer.write(data[:self.left])
            await self.writer.drain()
            raise Cut
        if self.left is not None:
            self.left -= len(data)
        piece = max(1, self.rate // 20) if self.rate else len(data)
        for at in range(0, len(data), max(1, piece)):
            self.writer.write(data[at:at + piece])
            await self.writer.drain()
            if self.rate:
                await asyncio.sleep(piece / self.rate)
