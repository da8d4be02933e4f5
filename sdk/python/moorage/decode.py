"""JSON objects of the API as frozen dataclasses, by the annotations of the class.

Times become aware datetimes, lists tuples. A missing field has the default of the class; a field that the class does not
know stays in `raw`, so that an older client reads the answers of a newer daemon. Text that is not UTF-8 comes as base64
in NAME_b64: it becomes a string as from os.fsdecode, which os.fsencode turns back into the same bytes.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import functools
import os
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from .errors import CorruptedError

T = TypeVar("T")


def decode(kind: type[T], data: Any) -> T:
    """`data`, a decoded JSON object, as the dataclass `kind`. CorruptedError if it cannot be one."""
    try:
        return typing.cast(T, _object(kind, data))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CorruptedError(f"the daemon's answer is not a {kind.__name__}: {error}") from error


def decode_list(kind: type[T], data: Any) -> list[T]:
    return [decode(kind, item) for item in data]


@functools.cache
def _fields(kind: type) -> list[tuple[str, str, Any]]:
    """(name, name in JSON, type) of each field but raw."""
    hints = typing.get_type_hints(kind)
    return [(field.name, field.metadata.get("json", field.name), hints[field.name])
            for field in dataclasses.fields(kind) if field.name != "raw"]


def _object(kind: type, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise TypeError(f"expected an object, got {type(data).__name__}")
    values = {}
    for name, key, hint in _fields(kind):
        if key in data or key + "_b64" in data:
            values[name] = _value(hint, data.get(key), data.get(key + "_b64"))
    if "raw" in {field.name for field in dataclasses.fields(kind)}:
        values["raw"] = data
    return kind(**values)


def _value(hint: Any, data: Any, encoded: Any = None) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):  # T | None, or also text
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        hint = str if isinstance(data, str) and str in choices else choices[0]
        return None if data is None and encoded is None else _value(hint, data, encoded)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if encoded is not None:
            return tuple(_text(each) for each in encoded)
        return tuple(_value(item, each) for each in data)
    if origin in (dict, Mapping):
        return dict(data)
    if encoded is not None:
        return _text(encoded)
    if hint is datetime.datetime:
        return datetime.datetime.fromisoformat(data)
    if dataclasses.is_dataclass(hint):
        return _object(typing.cast(type, hint), data)
    if hint is float and isinstance(data, int):
        return float(data)
    if hint in (int, str, bool, float) and (not isinstance(data, hint) or (hint is int and isinstance(data, bool))):
        raise TypeError(f"expected {hint.__name__}, got {data!r}")
    return data


def _text(encoded: str) -> str:
    return os.fsdecode(base64.b64decode(encoded, validate=True))


def put_text(body: dict[str, Any], name: str, value: str | bytes) -> None:
    """Puts `value` into a request's body, as NAME_b64 if it is not UTF-8."""
    raw = value if isinstance(value, bytes) else os.fsencode(value)
    try:
        body[name] = raw.decode()
    except UnicodeDecodeError:
        body[name + "_b64"] = base64.b64encode(raw).decode()


def put_words(body: dict[str, Any], name: str, words: typing.Iterable[str | bytes]) -> None:
    """The same for a list: all as base64 if one of them is not UTF-8."""
    raw = [word if isinstance(word, bytes) else os.fsencode(word) for word in words]
    try:
        body[name] = [word.decode() for word in raw]
    except UnicodeDecodeError:
        body[name + "_b64"] = [base64.b64encode(word).decode() for word in raw]
