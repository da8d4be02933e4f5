"""The errors of this package: MoorageError, and below it one class for each error code of the API.

`code`, `message` and `hint` are the daemon's. Errors of the connection have the same classes: UnavailableError if the
daemon was not reached, UnknownOutcomeError if the answer was lost for good.
"""

from __future__ import annotations

import builtins
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Result


class MoorageError(Exception):
    """Base of all errors of this package.

    code: as in docs/openapi.yaml, like "not_found". message: the problem. hint: the next step, may be empty.
    status: of HTTP, 0 without an answer. exec_id: the command that this is about, like "ex_5", or None.
    """

    code = "internal"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None, status: int = 0,
                 exec_id: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message, self.hint, self.status, self.exec_id = message, hint, status, exec_id

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class InvalidArgumentError(MoorageError):
    """The request is wrong; the message names the field."""

    code = "invalid_argument"


class NotFoundError(MoorageError):
    """No such object, or not visible to this user."""

    code = "not_found"


class AlreadyExistsError(MoorageError):
    """The name is in use, or the key was used for another request."""

    code = "already_exists"


class ConflictError(MoorageError):
    """A command runs there, another holder has the lease, or it has already ended."""

    code = "conflict"


class PreconditionFailedError(ConflictError):
    """if_match or if_none_match did not hold: somebody else changed the file. Nothing was changed.

    tag: of the contents now; None if there is no such file.
    """

    tag: str | None = None


class PermissionDeniedError(MoorageError):
    """Not allowed for this user, or by a rule of the host."""

    code = "permission_denied"


class UnavailableError(MoorageError, builtins.ConnectionError):
    """The daemon cannot be reached, or does not serve this now."""

    code = "unavailable"


class UnsupportedError(MoorageError):
    """This host, backend or release cannot do it."""

    code = "unsupported"


class ResourceExhaustedError(MoorageError):
    """A limit was reached: disk space, a quota, connections."""

    code = "resource_exhausted"


class TimeoutError(MoorageError, builtins.TimeoutError):
    """Something took too long.

    With a `result`, a command exceeded its time limit and was ended; `result` has its output until then. Without one, the
    client stopped waiting, and the command `exec_id`, if there is one, may still run.
    """

    code = "deadline_exceeded"
    result: Result | None = None


class UnknownOutcomeError(MoorageError, builtins.ConnectionError):
    """The connection was lost and did not come back: the change may or may not have happened."""

    code = "unknown_outcome"


class CorruptedError(MoorageError):
    """Damaged data: an archive, a store, an answer."""

    code = "corrupted"


class IoError(MoorageError):
    """The daemon could not read or write."""

    code = "io"


class InternalError(MoorageError):
    """A defect in the daemon."""

    code = "internal"


class CommandFailedError(MoorageError):
    """Raised by Result.check(): the command did not exit with 0. `result` has its output and end."""

    code = "command_failed"

    def __init__(self, message: str, *, result: Result) -> None:
        super().__init__(message, exec_id=result.exec_id)
        self.result = result


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a command ran: the command goes on. exec_id: its id, like "ex_5"; None if it may not have started."""

    def __init__(self, exec_id: str | None) -> None:
        super().__init__(f"interrupted; {exec_id} keeps running" if exec_id else "interrupted")
        self.exec_id: str | None = exec_id


_CLASSES: dict[str, type[MoorageError]] = {
    kind.code: kind for kind in (
        InvalidArgumentError, NotFoundError, AlreadyExistsError, ConflictError, PermissionDeniedError, UnavailableError,
        UnsupportedError, ResourceExhaustedError, TimeoutError, UnknownOutcomeError, CorruptedError, IoError, InternalError)}


def error_for(code: str, message: str, hint: str = "", status: int = 0, exec_id: str | None = None) -> MoorageError:
    """The error for a code of the API. A code that this release does not know becomes a MoorageError with that code."""
    kind = _CLASSES.get(code, MoorageError)
    if kind is ConflictError and status == 412:
        kind = PreconditionFailedError
    return kind(message, hint=hint, code=code, status=status, exec_id=exec_id)


def error_of_answer(status: int, body: bytes, etag: str | None = None, exec_id: str | None = None) -> MoorageError:
    """The error in an answer with a status of 400 or more."""
    try:
        fields = json.loads(body)
        error = error_for(fields["code"], fields["message"], fields.get("hint", ""), status, exec_id)
    except (ValueError, KeyError, TypeError):
        text = body[:200].decode(errors="replace").strip()
        code = "unavailable" if status == 503 else "internal"
        error = error_for(code, f"the daemon answered {status}" + (f": {text}" if text else ""), "", status, exec_id)
    if isinstance(error, PreconditionFailedError):
        error.tag = etag
    return error
