"""The base of all records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Record:
    """An object of the API at the time of the answer. None: the daemon did not say.

    raw: the JSON object as it came, with the fields that this release does not know.
    """

    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        """The fields that say something."""
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.repr and value not in (None, "", (), {}, field.default):
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"
