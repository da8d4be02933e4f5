"""The local side of copied trees. Names and links come from a sandbox, so nothing is followed or created outside of the
directory that the caller named. Paths of the sandbox never become local paths: each step is relative to a directory."""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets
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

    def create(self, name: str) -> CopiedFile:
        """A file to write. A link of this name is replaced, not followed."""
        return CopiedFile(name, self.fd)

    def link(self, name: str, target: str) -> None:
        """Replaces what has this name, unless it is a directory."""
        beside = os.path.join(os.path.dirname(name), name_beside())
        os.symlink(target, beside, dir_fd=self.fd)
        try:
            os.rename(beside, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except OSError:
            os.unlink(beside, dir_fd=self.fd)
            raise

    def close(self, mode: int | None = None) -> None:
        """mode: set last, as a read-only directory cannot be filled."""
        try:
            if mode is not None:
                os.fchmod(self.fd, mode & PERMISSIONS)
        finally:
            os.close(self.fd)


def name_beside() -> str:
    return ".moorage-" + secrets.token_hex(8)


def umask() -> int:
    """Of this process. os.umask() would change it, for all threads."""
    with open("/proc/self/status") as status:
        return next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o022)


class CopiedFile:
    """A file that a download writes. It gets its name in settle(): a download that fails changes nothing.

    Written through instead: a link that the caller named, a file with several names or of another owner, a pipe and a
    device. They are opened, and so emptied, with the first bytes or in settle().
    """

    def __init__(self, name: str, directory: int | None = None) -> None:
        """directory: of the name; a link there is replaced. None: the caller named a path, and a link is followed."""
        self._follows = directory is None
        # Of its own and opened once: nobody exchanges it meanwhile.
        place, self._name = os.path.split(name) if directory is None else (".", name)
        self._directory = os.open(place or ".", os.O_PATH | os.O_DIRECTORY, dir_fd=directory)
        self._file: BinaryIO | None = None
        self._beside: str | None = None
        self._old_mode: int | None = None  # of the file that it replaces
        try:
            found = self._found()
            if self._suits_replacing(found):
                self._create_beside(found)
        except BaseException:
            os.close(self._directory)
            raise

    def __enter__(self) -> CopiedFile:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._remove_beside()
            os.close(self._directory)

    def write(self, piece: bytes) -> int:
        if self._file is None:
            self._file = self._open_itself()
        return self._file.write(piece)

    def settle(self, entry: FileInfo | None) -> None:
        """The file is complete: gives it the mode and the time of its original, if that is a file, and its name."""
        self.write(b"")
        assert self._file is not None
        self._file.flush()
        fd = self._file.fileno()
        if entry is not None and stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, entry.mode & PERMISSIONS)
            if entry.mtime_at is not None:
                os.utime(fd, (entry.mtime_at.timestamp(), entry.mtime_at.timestamp()))
        elif self._beside is not None:
            os.fchmod(fd, 0o666 & ~umask() if self._old_mode is None else self._old_mode)
        if self._beside is not None:
            os.rename(self._beside, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            self._beside = None

    def _found(self) -> os.stat_result | None:
        try:
            return os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _suits_replacing(self, found: os.stat_result | None) -> bool:
        if found is None:
            return self._name != ""
        if stat.S_ISLNK(found.st_mode):
            return not self._follows
        return (stat.S_ISREG(found.st_mode) and found.st_nlink == 1
                and os.access(self._name, os.W_OK, dir_fd=self._directory, effective_ids=True))

    def _create_beside(self, found: os.stat_result | None) -> None:
        beside = name_beside()
        try:
            fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._directory)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return  # the file itself may still be writable
        self._beside, self._file = beside, os.fdopen(fd, "wb")
        if found is None or not stat.S_ISREG(found.st_mode):
            return
        self._old_mode = found.st_mode & PERMISSIONS
        try:
            os.fchown(fd, found.st_uid, found.st_gid)
        except PermissionError:
            self._file.close()
            self._file = None
            self._remove_beside()

    def _remove_beside(self) -> None:
        if self._beside is not None:
            os.unlink(self._beside, dir_fd=self._directory)
            self._beside = None

    def _open_itself(self) -> BinaryIO:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        if not self._follows:
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in a tree may have no reader
        return os.fdopen(os.open(self._name, flags, 0o666, dir_fd=self._directory), "wb")


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
