"""Sockets, sleeping and background work of the plain client. aio/transport.py has the same names for asyncio."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable

from .errors import Interrupted
from .http1 import CutOff

Interrupt = KeyboardInterrupt
RECEIVE_BYTES = 256 << 10
STOP_S = 5.0


class Silence(Exception):
    """No byte for too long. Internal: callers get a TimeoutError."""


class Connection:
    """One connection to the daemon. Errors: OSError from open(); CutOff and Silence from send() and receive()."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._process = os.getpid()

    @classmethod
    def open(cls, path: str) -> Connection:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(path)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def send(self, data: bytes, timeout: float | None) -> None:
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise Silence from None
        except OSError as error:
            raise CutOff(f"the connection was lost: {error}") from error

    def receive(self, timeout: float | None) -> bytes:
        """The next bytes; empty at the end of the connection. timeout: seconds, None: forever."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(RECEIVE_BYTES)
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


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def carrying(stop: KeyboardInterrupt, exec_id: str | None) -> BaseException:
    """The exception for Ctrl-C while a command runs."""
    return stop if isinstance(stop, Interrupted) else Interrupted(exec_id)


class Background:
    """A function that runs beside the caller, in a thread that does not keep the process alive."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: Exception | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = error

    def join(self) -> None:
        """Waits for its end, and raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Its result no longer matters."""


class Ticker:
    """Calls `work` every `seconds` until it returns False, or stop()."""

    def __init__(self, seconds: float, work: Callable[[], bool]) -> None:
        self._seconds, self._work = seconds, work
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds) and self._work():
            pass

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(STOP_S)  # a call in progress may wait for a daemon that hangs
