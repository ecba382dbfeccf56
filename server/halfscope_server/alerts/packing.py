"""States of an evaluation as bytes.

Must not know what is in them: plain values, numpy arrays, tuples as keys. Invariant: what is unpacked equals what was
packed, bit for bit; bytes of another version or that are damaged unpack to None.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import zstandard

VERSION = 6
_ARRAY = 1
_MAX_BYTES = 1 << 30


def pack(value: dict[str, Any]) -> bytes:
    """Version, then zstd of msgpack."""
    raw = msgspec.msgpack.encode([VERSION, value], enc_hook=_to_ext)
    return zstandard.compress(raw, 1)


def unpack(data: bytes) -> dict[str, Any] | None:
    """What was packed; None where these bytes are not of this version."""
    try:
        raw = zstandard.decompress(data, max_output_size=_MAX_BYTES)
        version, value = msgspec.msgpack.decode(raw, ext_hook=_from_ext)
    except (zstandard.ZstdError, msgspec.MsgspecError, ValueError, TypeError):
        return None
    return value if version == VERSION and isinstance(value, dict) else None


def _to_ext(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        narrow = _narrowed(value)
        header = [value.dtype.str, narrow.dtype.str, list(value.shape)]
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode([header, narrow.tobytes()]))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a state holds a {type(value).__name__}; expected plain values and arrays")


def _narrowed(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Counts mostly fit half their width."""
    if value.dtype == np.int64 and value.size and value.min() >= -(2**31) and value.max() < 2**31:
        return value.astype(np.int32)
    return value


def _from_ext(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise ValueError(f"extension {code} in a state; expected {_ARRAY}")
    (kind, narrow, shape), raw = msgspec.msgpack.decode(data)
    return np.frombuffer(raw, narrow).reshape(shape).astype(kind)
