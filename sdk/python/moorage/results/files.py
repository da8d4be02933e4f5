"""Records of files."""

from __future__ import annotations

import dataclasses
import datetime

from .record import Record


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class FileInfo(Record):
    """An entry of a directory, or a written file. type: file, directory, symlink or other. mode: permission bits, like 0o644.
    size_bytes: of the contents. target: of a symbolic link. path and hash ("sha256-...") are only known of a written file.
    """

    name: str
    type: str
    size_bytes: int = 0
    mode: int = 0
    mtime_at: datetime.datetime | None = None
    mtime_ns: int | None = None
    target: str | None = None
    path: str | None = None
    hash: str | None = None

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"

    @property
    def is_file(self) -> bool:
        return self.type == "file"

    @property
    def is_symlink(self) -> bool:
        return self.type == "symlink"

    @property
    def tag(self) -> str | None:
        """For if_match of a later change; known of a written file."""
        return f'"{self.hash}"' if self.hash else None
