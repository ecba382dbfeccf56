"""What users put into configurations and events, made into plain msgpack values of bounded size.

Must not import torch or numpy (objects of theirs are told by their type's module and never read: reading a tensor
would wait for the device). Invariant: whatever comes in, what goes out can be encoded and is no larger than asked.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import os
from collections.abc import Mapping
from typing import Any

import msgspec

MAX_DEPTH = 16
MAX_TEXT = 10_000
"""Longest single string, in characters."""
MAX_ITEMS = 10_000
"""Most entries of all containers of one value together."""

_INT64 = range(-(1 << 63), 1 << 63)


def bounded(values: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """A mapping as plain values that take at most `max_bytes` encoded; the largest entries give way to a note on
    their size."""
    kept = _Plainer().mapping(values, 0)
    sizes = {key: len(msgspec.msgpack.encode(value)) + len(key) * 4 + 5 for key, value in kept.items()}
    total = sum(sizes.values()) + 5
    for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if total <= max_bytes:
            return kept
        note = f"left out: {sizes[key]} bytes, at most {max_bytes} are kept of all entries together"
        kept[key] = note
        total += len(note) + 5 + len(key) * 4 - sizes[key]
    while total > max_bytes and kept:  # very many entries: the notes alone are too long
        key, note = kept.popitem()
        total -= len(note) + 5 + len(key) * 4
    return kept


def text(value: object, max_characters: int = MAX_TEXT) -> str:
    """A string that can be encoded: lone surrogates replaced, length bounded."""
    string = value if isinstance(value, str) else _described(value)
    return string[:max_characters].encode("utf-8", "replace").decode("utf-8")


class _Plainer:
    """Counts entries over one value, so that a huge or self-referring one ends."""

    def __init__(self) -> None:
        self._items_left = MAX_ITEMS

    def mapping(self, values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in values.items():
            self._items_left -= 1
            if self._items_left < 0:
                plain["..."] = f"{len(values)} entries, cut here"
                break
            plain[text(key, 500)] = self.value(value, depth + 1)
        return plain

    def value(self, value: object, depth: int) -> Any:
        if value is None or isinstance(value, bool | float):
            return value if type(value) in (bool, float, type(None)) else float(value)  # type: ignore[arg-type]
        if isinstance(value, enum.Enum):
            return text(value.name)
        if isinstance(value, int):
            return int(value) if value in _INT64 else text(str(value))
        if isinstance(value, str):
            return text(value)
        if depth >= MAX_DEPTH:
            return f"<{type(value).__qualname__}: nested more than {MAX_DEPTH} deep>"
        return self._container(value, depth)

    def _container(self, value: object, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
            return self.mapping(fields, depth)
        if isinstance(value, list | tuple | set | frozenset):
            plain = []
            for item in value:
                self._items_left -= 1
                if self._items_left < 0:
                    plain.append(f"{len(value)} entries, cut here")
                    break
                plain.append(self.value(item, depth + 1))
            return plain
        if type(value).__qualname__ == "Namespace" and type(value).__module__ == "argparse":
            return self.mapping(vars(value), depth)
        return _number(value) if type(value).__module__ == "numpy" else text(value)


def _number(value: Any) -> Any:
    """A NumPy scalar as Python's own; an array as a description."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        item = value.item()
        if isinstance(item, bool | int | float | str):
            return item if not isinstance(item, int) or item in _INT64 else str(item)
    return text(value)


def _described(value: object) -> str:
    """Objects whose text is short and known are shown as such, others by their type: a repr may read a tensor, or be
    a page long."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.timedelta | complex):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, int | float):
        return str(value)
    kind = type(value)
    if kind.__module__ == "torch" and kind.__qualname__ in ("dtype", "device", "Size"):
        return str(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"
