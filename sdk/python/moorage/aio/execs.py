"""A command that runs, or ran: by its id, from any process."""

from __future__ import annotations

import signal
import time
from typing import Any

from .. import calls
from ..calls import Call
from ..decode import decode
from ..errors import TimeoutError
from ..http1 import segment
from ..results import ExecInfo, Result
from .session import AsyncSession
from .streams import AsyncOutputStream, put_input
from .transport import Interrupt, carrying

WAIT_S = 60.0  # of one request; the daemon allows an hour


class AsyncExec:
    """A command. id: like "ex_5". It does not need this object: it continues when your program ends.

    Errors: NotFoundError for an unknown id, UnavailableError, and those that a method names.
    """

    def __init__(self, session: AsyncSession, exec_id: str) -> None:
        self._session, self.id = session, exec_id
        self._path = f"/execs/{segment(exec_id)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def _json(self, method: str, rest: str, body: Any = None, **more: Any) -> Any:
        try:
            return await self._session.json(method, self._path + rest, body, exec_id=self.id, **more)
        except Interrupt as stop:
            raise carrying(stop, self.id) from None

    async def info(self) -> ExecInfo:
        """Its record now."""
        return decode(ExecInfo, await self._json("GET", ""))

    async def wait(self, timeout: float | None = None) -> ExecInfo:
        """Waits for its end. timeout: seconds, None: no limit. TimeoutError, which carries the id, if it still runs then."""
        limit = calls.seconds_of(timeout, "timeout")
        end = None if limit is None else time.monotonic() + limit
        while True:
            left = WAIT_S if end is None else max(0.0, min(WAIT_S, end - time.monotonic()))
            info = decode(ExecInfo, await self._json("GET", "/wait", query={"timeout_ms": round(left * 1000)},
                                                     waits_s=left))
            if not info.running:
                return info
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"{self.id} still runs after {limit:g} s", exec_id=self.id)

    def output(self, offset: int = 0, *, follow: bool = True, tail_bytes: int | None = None,
               late: bool | None = None) -> AsyncOutputStream:
        """Its output from any byte offset, while it runs and later.

        follow      continue until it ends; False: stop at the current end
        tail_bytes  begin this many bytes before the current end
        late        include output that processes wrote after its end; None: only without follow

        InvalidArgumentError for an offset past the end.
        """
        return AsyncOutputStream(self._session, exec_id=self.id, offset=offset, follow=follow, tail_bytes=tail_bytes, late=late)

    async def result(self) -> Result:
        """Waits for its end, and returns it with all kept output."""
        async with self.output() as stream:
            return await stream.result()

    async def raw_output(self, channel: str = "all", offset: int = 0) -> tuple[bytes, tuple[tuple[int, int], ...]]:
        """The kept bytes up to now, and the gaps in them: (offset of the first missing byte, of the next kept one).

        channel: "all", "stdout" or "stderr".
        """
        head, body = await self._session.request(
            Call("GET", self._path + "/output", {"raw": 1, "stream": channel, "offset": offset}, accept="*/*", exec_id=self.id))
        gaps = head.header("Moorage-Output-Gaps") or ""
        pairs = [gap.split("-") for gap in gaps.split(", ") if gap]
        return body, tuple((int(first), int(following)) for first, following in pairs)

    async def write(self, data: bytes | str, offset: int = 0, *, close: bool = False) -> int:
        """Sends standard input; the command must have been started with stdin=True.

        offset  the number of input bytes before these; bytes that the command already has are skipped
        close   the input ends with these

        Returns the number of bytes that the command has now: the next offset. Waits for a command that reads slowly.
        ConflictError once the command has ended.
        """
        return await put_input(self._session, self.id, data.encode() if isinstance(data, str) else data, offset, close)

    async def signal(self, name: str | int, *, key: str | None = None) -> None:
        """Sends a signal, like "INT" or signal.SIGINT, to its foreground processes. ConflictError once it has ended."""
        text = signal.Signals(name).name if isinstance(name, int) else name
        await self._json("POST", "/signal", {"signal": text.removeprefix("SIG")}, key=key)

    async def cancel(self, *, key: str | None = None) -> None:
        """Ends it and all its processes: TERM, and KILL after a grace. Returns at once; wait() waits."""
        await self._json("POST", "/cancel", key=key)

    async def resize(self, columns: int, rows: int, *, key: str | None = None) -> None:
        """Sets the size of its terminal, in characters."""
        await self._json("POST", "/resize", {"columns": columns, "rows": rows}, key=key)
