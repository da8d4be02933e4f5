"""The local side of copied trees. Names and links come from a sandbox, so nothing is followed or created outside of the
directory that the caller named. Paths of the sandbox never become local paths: each step is relative to a directory."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from typing import BinaryIO

from .errors import CorruptedError, ResourceExhaustedError
from .results import FileInfo

DEEPEST = 400  # each level holds a descriptor
PERMISSIONS = 0o777


@dataclasses.dataclass(frozen=True)
class Copied:
    """What an upload or a download copied. bytes: of contents. skipped: sockets, devices and pipes, which are left out."""

    files: int = 0
    directories: int = 0
    links: int = 0
    bytes: int = 0
    skipped: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.files + other.files, self.directories + other.directories, self.links + other.links,
                      self.bytes + other.bytes, self.skipped + other.skipped)


def join(directory: str, name: str) -> str:
    """A path inside of a sandbox."""
    return f"{directory.rstrip('/')}/{name}" if directory else name


def split(path: str) -> tuple[str, str]:
    """(directory, name) of a path inside of a sandbox."""
    directory, slash, name = path.rstrip("/").rpartition("/")
    return (directory or "/") if slash else "", name


def check_name(name: str, place: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise CorruptedError(f"{place}: invalid file name {name!r}")
    return name


def check_depth(depth: int, place: str) -> None:
    if depth > DEEPEST:
        raise ResourceExhaustedError(f"{place} is nested too deeply")


class LocalDirectory:
    """An open directory. Close it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def at_top(cls, path: str | os.PathLike[str]) -> LocalDirectory:
        """The one that the caller named: created if it is missing, and links to it are followed."""
        os.makedirs(path, exist_ok=True)
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def enter(self, name: str) -> LocalDirectory:
        """A directory in this one, created if it is missing."""
        try:
            os.mkdir(name, 0o700, dir_fd=self.fd)
        except FileExistsError:
            pass
        return LocalDirectory(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd))

    def create(self, name: str) -> BinaryIO:
        """A file to write. A link of this name is replaced, not followed."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(name, flags, 0o600, dir_fd=self.fd)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            os.unlink(name, dir_fd=self.fd)
            fd = os.open(name, flags | os.O_EXCL, 0o600, dir_fd=self.fd)
        return os.fdopen(fd, "wb")

    def link(self, name: str, target: str) -> None:
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass
        os.symlink(target, name, dir_fd=self.fd)

    def close(self, mode: int | None = None) -> None:
        """mode: set last, as a read-only directory cannot be filled."""
        try:
            if mode is not None:
                os.fchmod(self.fd, mode & PERMISSIONS)
        finally:
            os.close(self.fd)


def settle(file: BinaryIO, entry: FileInfo | None) -> None:
    """Gives a written file the mode and the time of its original."""
    file.flush()
    if entry is None:
        return
    os.fchmod(file.fileno(), entry.mode & PERMISSIONS)
    if entry.mtime_at is not None:
        os.utime(file.fileno(), (entry.mtime_at.timestamp(), entry.mtime_at.timestamp()))


@dataclasses.dataclass(frozen=True)
class LocalEntry:
    """An entry of a local directory. kind: file, directory, symlink or other. mode: permission bits."""

    name: str
    kind: str
    mode: int


def look(path: str | os.PathLike[str]) -> LocalEntry:
    """What the caller named; a link is followed."""
    return _entry(os.path.basename(os.fspath(path)), os.stat(path).st_mode)


def entries(path: str) -> list[LocalEntry]:
    """The entries of a directory, sorted; links are not followed."""
    with os.scandir(path) as found:
        return sorted((_entry(each.name, each.stat(follow_symlinks=False).st_mode) for each in found), key=lambda e: e.name)


def _entry(name: str, mode: int) -> LocalEntry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink"))
    kind = next((kind for test, kind in kinds if test(mode)), "other")
    return LocalEntry(name, kind, mode & PERMISSIONS)


def open_local(path: str, follow: bool) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)), "rb")
