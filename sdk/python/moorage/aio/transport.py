"""Sockets, sleeping and background work of the async client. ../transport.py has the same names for the plain one."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..http1 import CutOff

Interrupt = asyncio.CancelledError
RECEIVE_BYTES = 256 << 10
FULL_QUEUE_S = 10.0


class Silence(Exception):
    """No byte for too long. Internal: callers get a TimeoutError."""


class Connection:
    """One connection to the daemon. Errors: OSError from open(); CutOff and Silence from send() and receive().

    A plain socket, not a stream of asyncio: a stream that cannot be written to any more loses what it could still read.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._process = os.getpid()

    @classmethod
    async def open(cls, path: str) -> Connection:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await cls._connect(sock, path)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @staticmethod
    async def _connect(sock: socket.socket, path: str) -> None:
        """Connects, or fails, at once. EAGAIN: too many wait to be accepted; sock_connect would take it for success."""
        end = time.monotonic() + FULL_QUEUE_S
        while True:
            try:
                return sock.connect(path)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(0.01)

    async def send(self, data: bytes, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except TimeoutError:
            raise Silence from None
        except OSError as error:
            raise CutOff(f"the connection was lost: {error}") from error

    async def receive(self, timeout: float | None) -> bytes:
        """The next bytes; empty at the end of the connection. timeout: seconds, None: forever."""
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.get_running_loop().sock_recv(self._socket, RECEIVE_BYTES)
        except TimeoutError:
            raise Silence from None
        except OSError as error:
            raise CutOff(f"the connection was lost: {error}") from error

    def is_usable(self) -> bool:
        """Whether it may carry another request: still open, with nothing to read, and of this process."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return self._process == os.getpid() and not readable.poll(0)

    def close(self) -> None:
        self._socket.close()


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def carrying(stop: asyncio.CancelledError, exec_id: str | None) -> BaseException:
    """The exception for a canceled task whose command goes on. asyncio compares its class, so the class stays the same."""
    if exec_id and not hasattr(stop, "exec_id"):
        stop.exec_id = exec_id  # type: ignore[attr-defined]
        stop.add_note(f"{exec_id} keeps running")
    return stop


class Background:
    """A coroutine that runs beside the caller, as a task."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.create_task(work())

    async def join(self) -> None:
        """Waits for its end, and raises what it raised."""
        await self._task

    def abandon(self) -> None:
        """Its result no longer matters."""
        self._task.cancel()


class Ticker:
    """Calls `work` every `seconds` until it returns False, or stop()."""

    def __init__(self, seconds: float, work: Callable[[], Awaitable[bool]]) -> None:
        self._seconds, self._work = seconds, work
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await asyncio.sleep(self._seconds)
        while await self._work():
            await asyncio.sleep(self._seconds)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
