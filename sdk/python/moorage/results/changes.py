"""Records of the changes in a workspace."""

from __future__ import annotations

import dataclasses
import itertools
import json

from ..decode import decode_list
from .record import Record


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class FileChange(Record):
    """A changed file. change: added, modified, deleted, mode, type or untracked. Modes are git's, like "100755"."""

    path: str
    change: str
    mode_before: str | None = None  # None: there was no such file
    mode_after: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Status(Record):
    """Changed and untracked files. truncated: there are more."""

    files: tuple[FileChange, ...] = ()
    truncated: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class DiffStat(Record):
    """Lines that one file's change adds and removes; binary: not text, or too large for a text diff. left_out: why no patch
    has it: name (git refuses it) or nested (a repository in the repository).
    """

    path: str
    change: str = ""
    added: int = 0
    removed: int = 0
    binary: bool = False
    left_out: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class LeftOut(Record):
    """A file that a patch lacks, and why: too_large, full (the others fill the patch; a patch of its path alone may have
    it), name (git refuses it), unreadable (its former version), nested (a repository in the repository). converted: it is
    in the patch, but git apply may write other bytes (line ends, filters).
    """

    path: str
    why: str
    bytes: int = 0
    removed: bool = False


class Patch(bytes):
    """A patch for `git apply --binary`. git skips the lines on top that list what it lacks."""

    @property
    def left_out(self) -> list[LeftOut]:
        """Files that it lacks; empty: it is whole."""
        mark = b"# moorage: "
        lines = itertools.takewhile(lambda line: line.startswith(mark), self.splitlines())
        return decode_list(LeftOut, [json.loads(line[len(mark):]) for line in lines])
