# Made from aio/session.py by make_plain.py. Do not edit it here.
"""Requests to the daemon: connections, repeats and errors.

A session has a few idle connections, which later calls use. A call whose answer was lost is repeated with its key for
half a minute; a daemon that was not reached at all is an error at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Callable
from typing import Any

from . import calls
from .calls import Backoff, Call
from .errors import CorruptedError, MoorageError, TimeoutError, UnavailableError, UnknownOutcomeError
from .errors import error_for, error_of_answer
from .http1 import AnswerParser, CutOff, Head, request_head, target
from .results import Progress
from .decode import decode
from .transport import Connection, Silence, sleep

MAX_IDLE = 4


class Answer:
    """An answer whose body is still being read. Close it."""

    def __init__(self, session: Session, connection: Connection, parser: AnswerParser, silence_s: float | None) -> None:
        assert parser.head is not None
        self._session, self._connection, self._parser, self._silence_s = session, connection, parser, silence_s
        self.head: Head = parser.head

    def piece(self) -> bytes:
        """The next bytes of the body; empty at its end. CutOff, Silence."""
        while True:
            data = self._parser.take()
            if data or self._parser.complete:
                return data
            self._parser.feed(self._connection.receive(self._silence_s))

    def read(self) -> bytes:
        pieces = []
        while data := self.piece():
            pieces.append(data)
        return b"".join(pieces)

    def close(self) -> None:
        """The connection serves another call if the answer was read to its end."""
        if self._parser.complete and self.head.keeps_alive:
            self._session.put_back(self._connection)
        else:
            self._connection.close()


class Session:
    """Where the daemon is, how long to wait for it, and the lease that changes carry. Shared by all objects of a client."""

    def __init__(self, socket: str, timeout: float | None, reconnect_s: float, lease: str | None) -> None:
        self.socket, self.timeout, self.reconnect_s, self.lease = socket, timeout, reconnect_s, lease
        self._idle: list[Connection] = []

    def with_lease(self, lease: str | None) -> Session:
        return Session(self.socket, self.timeout, self.reconnect_s, lease)

    def put_back(self, connection: Connection) -> None:
        if len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Closes the idle connections. A later call opens one again."""
        while self._idle:
            self._idle.pop().close()

    def _connect(self, fresh: bool) -> Connection:
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        try:
            return Connection.open(self.socket)
        except PermissionError as error:
            raise error_for("permission_denied", f"not allowed to connect to {self.socket}",
                            "be in the group of the socket, usually moorage: id -nG") from error
        except OSError as error:
            raise UnavailableError(f"cannot reach the daemon at {self.socket}: {error.strerror or error}",
                                   hint="is mooraged running? Client(socket=...) or MOORAGE_SOCKET names another socket"
                                   ) from error

    def open(self, call: Call, fresh: bool = False) -> Answer:
        """One attempt: sends the call and reads the head of the answer, whatever its status.

        UnavailableError: nothing was sent. CutOff, Silence: it was, and the daemon may act on it.
        """
        silence_s = call.silence_s
        if silence_s is not None and not call.is_stream:
            silence_s = (silence_s if self.timeout is None else self.timeout) + call.waits_s
        connection = self._connect(fresh or not (call.body is None or isinstance(call.body, bytes)))
        parser = AnswerParser()
        try:
            try:
                self._send(connection, call, silence_s)
            except CutOff:
                pass  # refused before the body was read: the answer has the reason
            while parser.head is None:
                parser.feed(connection.receive(silence_s))
            return Answer(self, connection, parser, silence_s)
        except BaseException:
            connection.close()
            raise

    def _send(self, connection: Connection, call: Call, silence_s: float | None) -> None:
        head = request_head(call.method, target(call.root + call.path, call.query), call.all_headers(self.lease))
        if call.body is None or isinstance(call.body, bytes):
            whole = head + (call.body or b"")
            for at in range(0, len(whole), calls.PIECE_BYTES):
                connection.send(whole[at:at + calls.PIECE_BYTES], silence_s)
            return
        connection.send(head, silence_s)
        while piece := call.body.read(calls.PIECE_BYTES):
            connection.send(b"%x\r\n%b\r\n" % (len(piece), piece), silence_s)
        connection.send(b"0\r\n\r\n", silence_s)

    def open_patiently(self, call: Call) -> Answer:
        """An answer with a status below 400, after repeats where they are safe. Otherwise its error."""
        backoff, running = Backoff(calls.PATIENCE_S), Backoff(max(calls.PATIENCE_S, call.silence_s or 0))
        call.rewind()
        while True:
            waits, later_s = backoff, None
            try:
                answer = self.open(call, fresh=call.lost)
            except CutOff as error:
                call.lost, failure = True, self.lost(call, error)
            except Silence:
                raise self.silent(call) from None
            except UnavailableError as error:
                if not call.lost:
                    raise
                failure = error
            else:
                refusal = self.refusal(answer, call)
                if refusal is None:
                    return answer
                failure, later_s = refusal, calls.retry_after_s(answer.head)
                if calls.is_in_progress(call, refusal):
                    waits = running
                elif not calls.comes_later(answer.head):
                    raise refusal
            pause = waits.pause(later_s)
            if pause is None or not call.rewind():
                raise failure
            sleep(pause)

    def refusal(self, answer: Answer, call: Call) -> MoorageError | None:
        """The error of an answer, read to its end; None for a status below 400."""
        if answer.head.status < 400:
            return None
        body = b""
        try:
            body = answer.read()
        except (CutOff, Silence):
            pass  # the status says enough
        finally:
            answer.close()
        return error_of_answer(answer.head.status, body, answer.head.header("ETag"), call.exec_id)

    @staticmethod
    def lost(call: Call, error: CutOff) -> MoorageError:
        return UnknownOutcomeError(f"the daemon's answer was lost: {error}", exec_id=call.exec_id,
                                   hint="check whether it happened" if call.method != "GET" else "")

    @staticmethod
    def silent(call: Call) -> MoorageError:
        return TimeoutError("the daemon did not answer in time", exec_id=call.exec_id,
                            hint="the outcome is unknown; the same key repeats the call safely" if call.method != "GET" else "")

    def request(self, call: Call) -> tuple[Head, bytes]:
        """The whole answer. A lost one is requested again."""
        backoff = Backoff(calls.PATIENCE_S)
        while True:
            answer = self.open_patiently(call)
            try:
                return answer.head, answer.read()
            except CutOff as error:
                call.lost, pause = True, backoff.pause()
                if pause is None or not call.rewind():
                    raise self.lost(call, error) from error
            except Silence:
                raise self.silent(call) from None
            finally:
                answer.close()
            sleep(pause)

    def json(self, method: str, path: str, body: Any = None, *, query: dict[str, Any] | None = None, key: str | None = None,
                   headers: dict[str, str | None] | None = None, silence_s: float | None = calls.SILENCE_S, waits_s: float = 0,
                   exec_id: str | None = None) -> Any:
        """One call with JSON in both directions. None for an answer without a body."""
        call = Call(method, path, query or {}, None if body is None else json.dumps(body).encode(), calls.JSON,
                    headers=headers or {}, key=key or "", silence_s=silence_s, waits_s=waits_s, exec_id=exec_id)
        return parsed((self.request(call))[1])

    def long(self, path: str, body: Any, progress: Callable[[Progress], object] | None, key: str | None) -> Any:
        """A POST that may take minutes. `progress` is called with each Progress."""
        call = Call("POST", path, {}, None if body is None else json.dumps(body).encode(), calls.JSON, calls.NDJSON,
                    key=key or "", silence_s=calls.LONG_SILENCE_S)
        backoff = Backoff(calls.PATIENCE_S)
        while True:
            answer = self.open_patiently(call)
            try:
                if "ndjson" not in (answer.head.header("Content-Type") or ""):
                    return parsed(answer.read())
                for line in lines(answer):
                    if "progress" in line and progress is not None:
                        progress(decode(Progress, line["progress"]))
                    if "error" in line:
                        raise error_for(line["error"]["code"], line["error"]["message"], line["error"].get("hint", ""))
                    if "result" in line:
                        return line["result"]
                raise CutOff("it ended without a result")
            except CutOff as error:
                call.lost, pause = True, backoff.pause()
                if pause is None:
                    raise self.lost(call, error) from error
            except Silence:
                raise self.silent(call) from None
            finally:
                answer.close()
            sleep(pause)

    def pause(self, backoff: Backoff, failure: MoorageError) -> None:
        """Sleeps before the next attempt, or raises the failure of the last one."""
        seconds = backoff.pause()
        if seconds is None:
            raise failure
        sleep(seconds)

    def whole(self, path: str, query: dict[str, Any] | None = None, silence_s: float | None = calls.SILENCE_S) -> bytes:
        """The whole body of a GET, unchanged."""
        return (self.request(Call("GET", path, query or {}, accept="*/*", silence_s=silence_s)))[1]

    def pieces(self, call: Call) -> Iterator[bytes]:
        """The body of a GET, piece by piece, for one that is too large for memory. One attempt: it cannot be taken back."""
        answer = self.open_patiently(call)
        try:
            while data := answer.piece():
                yield data
        except CutOff as error:
            raise self.lost(call, error) from error
        except Silence:
            raise self.silent(call) from None
        finally:
            answer.close()


def parsed(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError as error:
        raise CorruptedError(f"the daemon's answer is not JSON: {error}") from error


def lines(answer: Answer) -> Iterator[Any]:
    """The lines of an answer, each as JSON. CutOff, Silence."""
    rest = b""
    while data := answer.piece():
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            if line.strip():
                yield parsed(line)
    if rest.strip():
        yield parsed(rest)
