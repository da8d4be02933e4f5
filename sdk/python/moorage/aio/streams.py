"""The output of a command while it comes, over as many connections as that takes."""

from __future__ import annotations

import collections
import io
import json
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

from .. import calls
from ..calls import Backoff, Call
from ..errors import ConflictError, MoorageError, NotFoundError, TimeoutError, UnavailableError, UnknownOutcomeError
from ..http1 import CutOff, segment
from ..records import OUTPUT_TYPE, Chunk, OutputParser
from ..results import ExecInfo, Result
from .session import AsyncAnswer, AsyncSession
from .transport import Background, Interrupt, Silence, carrying, sleep


class AsyncOutputStream:
    """Output of a command, to iterate over: each item is a Chunk of output, and nothing else.

        async with workspace.stream("make") as stream:
            async for chunk in stream:
                print(chunk.text, end="")
        print(stream.exit_code)

    The stream begins in `with`, or with the first item. After a lost connection it continues at `offset` on a new one; it
    tries for reconnect_s seconds, see Client. Leaving the stream does not end the command; cancel() does.
    Errors: those of the API, like ConflictError; UnknownOutcomeError if the daemon does not come back.
    """

    def __init__(self, session: AsyncSession, *, start: Call | None = None, exec_id: str | None = None, offset: int = 0,
                 tail_bytes: int | None = None, follow: bool = True, late: bool | None = None,
                 stdin: calls.Body | None = None) -> None:
        self._session, self._start, self._exec_id = session, start, exec_id
        self._tail_bytes, self._follow, self._late, self._stdin = tail_bytes, follow, late, stdin
        self._parser = OutputParser(offset)
        self._answer: AsyncAnswer | None = None
        self._feeder: Background | None = None
        self._ready: collections.deque[Chunk] = collections.deque()
        self._backoff = Backoff(session.reconnect_s)
        self._refused = Backoff(calls.PATIENCE_S)  # before it began, as too much else goes on
        self._reached = self._answered = self._over = False
        self._timeout_s: float | None = None

    @property
    def exec_id(self) -> str:
        """The id of the command, like "ex_5". ValueError before the stream begins."""
        if self._exec_id is None:
            raise ValueError("the stream has not begun: use it in `with`")
        return self._exec_id

    @property
    def offset(self) -> int:
        """Bytes of output so far, lost ones included; output(offset=...) continues there."""
        return self._parser.offset

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Output that was not kept: (offset of the first missing byte, of the next kept one)."""
        return self._parser.gaps

    @property
    def truncated(self) -> bool:
        """Whether the command wrote more than the host keeps; the rest was dropped."""
        return self._parser.truncated

    @property
    def notices(self) -> tuple[str, ...]:
        """Notes of the daemon for people, for example why no output arrives."""
        return tuple(self._parser.notices)

    @property
    def end(self) -> ExecInfo | None:
        """The record of the command after the end of its output; None before it."""
        return self._parser.end

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0. False before its end."""
        return self.end is not None and self.end.state == "exited" and self.end.exit_code == 0

    @property
    def exit_code(self) -> int | None:
        """As Result.exit_code; None before the end."""
        return None if self.end is None else self.end.status

    async def __aenter__(self) -> AsyncOutputStream:
        try:
            await self._begin()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        self.close()
        if isinstance(error, Interrupt):
            stop = carrying(error, self._exec_id)
            if stop is not error:
                raise stop from None

    def close(self) -> None:
        """Stops following. The command goes on."""
        self._over = True
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        if self._feeder is not None:
            self._feeder.abandon()

    async def cancel(self, *, key: str | None = None) -> None:
        """Ends the command and all its processes: TERM, and KILL after a grace. Returns at once; the stream then ends, too."""
        await self._session.json("POST", f"/execs/{segment(self.exec_id)}/cancel", key=key, exec_id=self._exec_id)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        while not self._ready:
            if self._over or not await self._more():
                raise StopAsyncIteration
        return self._ready.popleft()

    async def lines(self) -> AsyncIterator[str]:
        """The output line by line, without line ends; standard output and error each keep their lines whole."""
        rests: dict[str, str] = {}
        async for chunk in self:
            *whole, rests[chunk.channel] = (rests.get(chunk.channel, "") + chunk.text).split("\n")
            for line in whole:
                yield line
        for rest in rests.values():
            if rest:
                yield rest

    async def result(self) -> Result:
        """Reads the rest of the output, and returns it with the end of the command. Chunks that you took before are not in it.

        TimeoutError, with that result, if the command exceeded the time limit it was started with.
        """
        parts: dict[str, list[bytes]] = {"stdout": [], "stderr": [], "terminal": []}
        async for chunk in self:
            parts[chunk.channel].append(chunk.data)
        if self.end is None:
            raise ConflictError(f"{self._exec_id} has not ended", hint="wait() waits for its end", exec_id=self._exec_id)
        result = Result(exec=self.end, stdout_bytes=b"".join(parts["stdout"] + parts["terminal"]),
                        stderr_bytes=b"".join(parts["stderr"]), gaps=self.gaps, truncated=self.truncated)
        if self._timeout_s is not None and self.end.state == "timed_out":
            error = TimeoutError(f"{self.end.id} ran longer than {self._timeout_s:g} s and was ended", exec_id=self.end.id)
            error.result = result
            raise error
        return result

    async def _begin(self) -> None:
        while self._answer is None and not self._over:
            await self._attempt(self._connect)

    async def _more(self) -> bool:
        """Waits for output. False: there is no more."""
        await self._begin()
        await self._attempt(self._receive)
        return not self._over or bool(self._ready)

    async def _attempt(self, step: Callable[[], Any]) -> None:
        """Runs a step. A lost connection is dropped, after a pause; the next step makes another one."""
        try:
            await step()
            return
        except (CutOff, Silence) as error:
            failure: MoorageError = UnknownOutcomeError(f"the connection was lost: {error}".rstrip(": "), exec_id=self._exec_id)
            may_pass = True
            if self._start is not None:
                self._start.lost = True
        except MoorageError as error:
            # An answer is final, except "unavailable" to a reader: a daemon that is shutting down sends it.
            failure, unavailable = error, isinstance(error, UnavailableError)
            may_pass = unavailable and (self._exec_id is not None if self._answered else self._reached)
        except Interrupt as stop:
            self.close()
            raise carrying(stop, self._exec_id) from None
        self._drop()
        pause = self._backoff.pause() if may_pass else None
        if pause is None:
            self.close()
            failure.exec_id = failure.exec_id or self._exec_id
            if may_pass and not failure.hint and self._exec_id:
                failure.hint = f'it may keep running; go on with client.exec("{self._exec_id}").output(offset={self.offset})'
            raise failure
        self._reached = True
        try:
            await sleep(pause)
        except Interrupt as stop:
            raise carrying(stop, self._exec_id) from None

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _next_call(self) -> Call:
        if self._exec_id is None:
            assert self._start is not None
            return self._start
        query: dict[str, Any] = {"offset": self.offset, "follow": 1 if self._follow else None,
                                 "late": None if self._late is None else int(self._late)}
        if self._tail_bytes is not None:
            query["tail_bytes"] = self._tail_bytes
            del query["offset"]
        return Call("GET", f"/execs/{segment(self._exec_id)}/output", query, accept=OUTPUT_TYPE)

    async def _connect(self) -> None:
        self._answered = False
        call = self._next_call()
        call.silence_s, call.is_stream = calls.STREAM_SILENCE_S, True
        call.exec_id = self._exec_id
        answer = await self._session.open(call, fresh=True)
        self._reached = True
        refusal = await self._session.refusal(answer, call)
        if refusal is not None:
            if calls.is_in_progress(call, refusal):
                raise CutOff(refusal.message)
            if calls.comes_later(answer.head):
                pause = self._refused.pause(calls.retry_after_s(answer.head))
                if pause is not None:
                    return await sleep(pause)
            self._answered = True
            raise refusal
        self._answer = answer
        self._parser.begin()
        self._parser.note(answer.head.header("Moorage-Warning"))
        if self._exec_id is None:
            self._exec_id = answer.head.header("Moorage-Exec")
            if self._stdin is not None:
                self._feeder = Background(self._feed)

    async def _receive(self) -> None:
        assert self._answer is not None
        data = await self._answer.piece()
        if data:
            chunks = self._parser.feed(data)
            self._ready.extend(chunks)
            self._backoff.reset()
            if self._parser.offset and self._tail_bytes is not None and chunks:
                self._tail_bytes = None  # a later connection continues at the offset
        if self._parser.failed is not None:
            error, self._parser.failed, self._answered = self._parser.failed, None, True
            raise error
        if self._parser.end is not None:
            await self._finish()
        elif not data and self._follow:
            raise CutOff("the output ended before the command")  # the daemon stops
        elif not data:
            self.close()

    async def _finish(self) -> None:
        assert self._answer is not None
        while await self._answer.piece():  # so that the connection serves another call
            pass
        feeder, self._feeder = self._feeder, None
        self.close()
        if feeder is not None:
            await feeder.join()

    async def _feed(self) -> None:
        assert self._exec_id is not None and self._stdin is not None
        try:
            await feed(self._session, self._exec_id, self._stdin)
        except (ConflictError, NotFoundError):
            pass  # the command ended before it read everything
        except Exception:
            # Without the rest of its input the command may wait forever, and its end would wake nobody.
            await self.cancel()
            raise


async def feed(session: AsyncSession, exec_id: str, source: calls.Body) -> None:
    """Sends all of `source` as standard input, and its end. Nothing arrives twice, whatever happens to connections."""
    offset = 0
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    while True:
        piece = file.read(calls.PIECE_BYTES)
        backoff = Backoff(session.reconnect_s)
        while True:
            try:
                await put_input(session, exec_id, piece, offset, not piece)
                break
            except (UnavailableError, UnknownOutcomeError):  # the daemon restarts
                pause = backoff.pause()
                if pause is None:
                    raise
            await sleep(pause)
        if not piece:
            return
        offset += len(piece)


async def put_input(session: AsyncSession, exec_id: str, data: bytes, offset: int, close: bool) -> int:
    """Sends input that follows the first `offset` bytes. Returns the bytes that the command has by then."""
    call = Call("PUT", f"/execs/{segment(exec_id)}/stdin", {"offset": offset, "close": 1 if close else None}, data, calls.BYTES,
                silence_s=None, exec_id=exec_id)  # without a limit on silence: the command may read slowly
    # A repeat begins at the same offset, and the command's supervisor skips what it has.
    body = (await session.request(call))[1]
    return int(json.loads(body)["accepted"])
