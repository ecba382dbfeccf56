"""Free-form values from outside, made safe to keep: bounded, of plain types, msgpack in and out.

Owns the limits on text and mappings that an agent sends. Must not import the other store modules.
Names and messages hold nothing that turns the direction of what is written behind them.
Invariant: what `pack` wrote, `unpack` gives back with every float bit for bit, and it consists of None, bool, int,
float, str, list and dict with str keys only. Text is cut rather than refused: a run whose name is too long is still a
run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

MAX_MAPPING_BYTES = 1 << 20
"""Largest config, environment or merged facts kept."""
MAX_DEPTH = 16
"""Nesting kept; deeper values are replaced by their type's name."""

_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Embeddings, overrides and isolates; letters that are written from the right need none of them."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


def text(value: str, max_chars: int) -> str:
    """Text without NUL (PostgreSQL takes none) and turns of direction, cut with an ellipsis where it is too long."""
    value = _TURNING.sub("", value.replace("\x00", "�"))
    return value if len(value) <= max_chars else value[: max_chars - 1] + "…"


def texts(values: Iterable[str], *, max_items: int, max_chars: int) -> list[str]:
    """The first `max_items` of a list of texts."""
    return [text(value, max_chars) for _, value in zip(range(max_items), values, strict=False)]


def pack(value: object) -> bytes:
    """A plain value as msgpack."""
    return _encoder.encode(value)


def unpack(data: bytes) -> Any:
    """The value that `pack` was given."""
    return _decoder.decode(data)


def mapping(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A mapping of plain values; one that is too large is replaced by a note that says so."""
    plain: dict[str, Any] = _plain(values, MAX_DEPTH)
    size_bytes = len(pack(plain))
    if size_bytes > MAX_MAPPING_BYTES:
        return {"halfscope": f"{what} of {size_bytes} bytes was left out; at most {MAX_MAPPING_BYTES} are kept"}
    return plain


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value.replace("\x00", "�")
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, dict):
        if depth == 0:
            return "<dict>"
        return {str(_plain(key, 0)): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return "<list>" if depth == 0 else [_plain(item, depth - 1) for item in value]
    return str(value)
