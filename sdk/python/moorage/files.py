# Made from aio/files.py by make_plain.py. Do not edit it here.
"""Files of a workspace, without a command: they are there while its sandbox is stopped, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

from . import calls, tree
from .calls import Body, Call, Path, raw_file_path, raw_path, text_path
from .decode import decode, decode_list, put_text
from .errors import InvalidArgumentError, MoorageError, NotFoundError, ResourceExhaustedError
from .results import FileInfo
from .tree import Copied, LocalDirectory
from .session import Session, parsed

Entries = list[FileInfo]


class Files:
    """Files of a workspace: `workspace.files`.

    A relative path is below /workspace; an absolute one is in /workspace or /home/user. Names may have any bytes, as from
    os.fsdecode. A mode is an int of permission bits, like 0o644.
    Errors of all calls: NotFoundError, InvalidArgumentError for a path outside, ConflictError while another holder has the
    lease, ResourceExhaustedError for a full disk or quota.
    """

    def __init__(self, session: Session, path: str) -> None:
        self._session, self._path = session, path

    # -- reading --------------------------------------------------------------------------------------

    def read(self, path: Path) -> bytes:
        """The bytes of a file."""
        return self._session.whole(self._path + "/file", {"path": raw_file_path(path)})

    def read_text(self, path: Path, encoding: str = "utf-8") -> str:
        """A file as text. UnicodeDecodeError if it is not in that encoding."""
        return (self.read(path)).decode(encoding)

    def read_tagged(self, path: Path) -> tuple[bytes, str]:
        """(bytes, tag) of a file of at most 1 GiB: a change with if_match=tag succeeds only while it has these bytes."""
        call = Call("GET", self._path + "/file", {"path": raw_file_path(path), "hash": 1}, accept="*/*")
        head, body = self._session.request(call)
        return body, head.header("ETag") or ""

    def pieces(self, path: Path) -> Iterator[bytes]:
        """The bytes of a file piece by piece, for one that is too large for memory."""
        for piece in self._session.pieces(Call("GET", self._path + "/file", {"path": raw_file_path(path)}, accept="*/*")):
            yield piece

    def list(self, path: Path = "") -> Entries:
        """The entries of a directory. ResourceExhaustedError if it has too many for one answer (100,000)."""
        answer = self._listing(path)
        if answer.get("truncated"):
            raise ResourceExhaustedError(f"{os.fspath(path) or '/workspace'} has too many entries to list",
                                         hint="list it by a command: run([\"ls\", \"-U\", path])")
        return decode_list(FileInfo, answer["entries"])

    def _listing(self, path: Path) -> dict[str, Any]:
        answer = self._session.json("GET", self._path + "/files", query={"path": raw_path(path)})
        return dict(answer)

    def stat(self, path: Path) -> FileInfo:
        """Type, size, mode and time of a file or directory; a link is not followed. NotFoundError."""
        directory, name = tree.split(text_path(path))
        if not name or name in (".", ".."):
            raise InvalidArgumentError(f"{os.fspath(path)!r} has no name to look for in its directory")
        for entry in self.list(directory):
            if entry.name == name:
                return entry
        raise NotFoundError(f"there is no {os.fspath(path)}")

    def exists(self, path: Path) -> bool:
        """Whether there is a file, directory or link of this name."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        except InvalidArgumentError:
            return self._is_top(text_path(path))
        return True

    def _is_top(self, path: str) -> bool:
        """For a path whose parent cannot be listed: True for /workspace and /home/user, False below a file."""
        place = os.path.normpath(os.path.join("/workspace", path))
        if place in ("/workspace", "/home/user"):
            return True
        if place.startswith(("/workspace/", "/home/user/")):
            return False
        raise InvalidArgumentError(f"{path} is neither in /workspace nor in /home/user")

    # -- changes --------------------------------------------------------------------------------------

    def write(self, path: Path, content: Body | str, *, mode: int | None = None, if_match: str | None = None,
                    if_none_match: Literal["*"] | None = None, key: str | None = None) -> FileInfo:
        """Writes a file, whole or not at all; durable when it returns. Its directory must exist.

        content: bytes, text (as UTF-8), or a file open for reading bytes. mode: None keeps the mode, or is 0o644 for a new
        file. if_match: a tag, or "*" for any existing file; if_none_match="*": only if it does not exist;
        PreconditionFailedError otherwise. The result's `tag` is the new tag.
        """
        call = Call("PUT", self._path + "/file", {"path": raw_file_path(path), "mode": calls.mode_text(mode)},
                    calls.content_of(content, "content"),
                    headers={"If-Match": if_match, "If-None-Match": if_none_match}, key=key or "", silence_s=calls.LONG_SILENCE_S)
        return decode(FileInfo, {"name": tree.split(text_path(path))[1], **parsed((self._session.request(call))[1])})

    def remove(self, path: Path, *, recursive: bool = False, if_match: str | None = None, key: str | None = None) -> None:
        """Removes a file, a link, or a directory with recursive=True. if_match: as for write()."""
        query = {"path": raw_file_path(path), "recursive": 1 if recursive else None}
        self._session.json("DELETE", self._path + "/file", query=query, headers={"If-Match": if_match}, key=key)

    def rename(self, source: Path, target: Path, *, if_match: str | None = None, key: str | None = None) -> None:
        """Renames within /workspace or within /home/user. if_match: of the source, as for write()."""
        body: dict[str, Any] = {}
        put_text(body, "from", raw_file_path(source, "source"))
        put_text(body, "to", raw_file_path(target, "target"))
        self._session.json("POST", self._path + "/files/move", body, headers={"If-Match": if_match}, key=key)

    def make_dir(self, path: Path, *, key: str | None = None) -> None:
        """Creates a directory and its parents; it may exist already."""
        body: dict[str, Any] = {}
        put_text(body, "path", raw_file_path(path))
        self._session.json("POST", self._path + "/files/mkdir", body, key=key)

    def symlink(self, path: Path, target: Path, *, key: str | None = None) -> None:
        """Creates a link at `path`, which must not exist. target: stored unchanged; it need not exist."""
        body: dict[str, Any] = {}
        put_text(body, "path", raw_file_path(path))
        put_text(body, "target", raw_file_path(target, "target"))
        self._session.json("POST", self._path + "/files/symlink", body, key=key)

    # -- trees ----------------------------------------------------------------------------------------

    def upload(self, local: Path, path: Path) -> Copied:
        """Copies a local file or directory into the workspace, as `path`. Parents of `path` must exist.

        Files keep their modes, links stay links; a directory gets the usual mode. Existing files are replaced, other files
        in an existing directory stay. OSError for what cannot be read here.
        """
        found = tree.look(local)
        return self._upload(os.fspath(local), found, text_path(path), 0)

    def _upload(self, local: str, entry: tree.LocalEntry, path: str, depth: int) -> Copied:
        tree.check_depth(depth, path)
        if entry.kind == "file":
            with tree.open_local(local, follow=depth == 0) as file:
                info = self.write(path, file, mode=entry.mode)
            return Copied(files=1, bytes=info.size_bytes)
        if entry.kind == "symlink":
            self._replace_link(path, os.readlink(local))
            return Copied(links=1)
        if entry.kind != "directory":
            return Copied(skipped=1)
        if path:
            self.make_dir(path)
        copied = Copied(directories=1)
        for child in tree.entries(local):
            copied += self._upload(os.path.join(local, child.name), child, tree.join(path, child.name), depth + 1)
        return copied

    def _replace_link(self, path: str, target: str) -> None:
        try:
            self.symlink(path, target)
        except MoorageError as error:
            if error.code != "already_exists":
                raise
            self.remove(path)
            self.symlink(path, target)

    def download(self, path: Path, local: Path) -> Copied:
        """Copies a file or directory of the workspace here, as `local`. The parent of `local` must exist.

        Modes, times and links are kept; links are not followed, and an existing one is replaced. A file is replaced when
        it is complete. What processes inside change meanwhile may arrive in part. OSError for what cannot be written here.
        """
        remote = text_path(path)
        try:
            answer = self.list(remote)
        except MoorageError as error:
            if error.code != "invalid_argument":  # not a directory
                raise
            return self._download_file(remote, os.fspath(local))
        return self._download(remote, answer, LocalDirectory.at_top(local), None, 0)

    def _download_file(self, path: str, local: str) -> Copied:
        entry = self.stat(path)
        size = 0
        with tree.CopiedFile(local) as file:
            for piece in self.pieces(path):
                size += file.write(piece)
            file.settle(entry if entry.is_file else None)
        return Copied(files=1, bytes=size)

    def _download(self, path: str, found: Entries, directory: LocalDirectory, mode: int | None, depth: int) -> Copied:
        copied = Copied(directories=1)
        try:
            tree.check_depth(depth, path)
            for entry in found:
                name = tree.check_name(entry.name, path)
                source = tree.join(path, name)
                if entry.is_dir:
                    copied += self._download(source, self.list(source), directory.enter(name), entry.mode, depth + 1)
                elif entry.is_symlink:
                    directory.link(name, entry.target or "")
                    copied += Copied(links=1)
                elif entry.is_file:
                    copied += self._download_into(source, entry, directory)
                else:
                    copied += Copied(skipped=1)
        finally:
            directory.close(mode)
        return copied

    def _download_into(self, path: str, entry: FileInfo, directory: LocalDirectory) -> Copied:
        size = 0
        with directory.create(entry.name) as file:
            for piece in self.pieces(path):
                size += file.write(piece)
            file.settle(entry)
        return Copied(files=1, bytes=size)
