"""Arrays as plotly.js takes them: typed, little-endian, base64.

Must not import plotly. Invariant: no NaN and no infinity leaves here, for plotly draws neither and JSON cannot hold
them; but in grids, where NaN is a blank cell.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = float(np.finfo(np.float32).max)


def packed(values: NDArray[Any]) -> dict[str, str] | list[float]:
    """A numeric array as {"dtype", "bdata"}; an empty one as [].

    Integers that fit go as int32 (plotly.js has no 64-bit integers), all else as float64.
    """
    if values.size == 0:
        return []
    if values.dtype.kind in "iu" and int(values.min()) >= -(2**31) and int(values.max()) < 2**31:
        kind, array = "i4", values.astype("<i4")
    else:
        kind, array = "f8", values.astype("<f8")
        assert np.isfinite(array).all(), "only finite numbers are drawn"
    return {"dtype": kind, "bdata": base64.b64encode(array.tobytes()).decode("ascii")}


def packed_grid(values: NDArray[Any]) -> dict[str, str] | list[list[float]]:
    """A two-dimensional array for a heatmap, in float32, whose largest number stands for all beyond; NaN is a blank
    cell."""
    if values.size == 0:
        return []
    data = base64.b64encode(np.clip(values, -LARGEST, LARGEST).astype("<f4").tobytes()).decode("ascii")
    return {"dtype": "f4", "bdata": data, "shape": f"{values.shape[0]}, {values.shape[1]}"}


def broken(values: NDArray[np.float64]) -> dict[str, str] | list[float | None]:
    """The values of a line that breaks off where they are NaN."""
    gaps = np.isnan(values)
    if not gaps.any():
        return packed(values)  # type: ignore[return-value]  # an empty list fits both
    return [None if gap else value for value, gap in zip(values.tolist(), gaps.tolist(), strict=True)]


def unpacked(packed_values: dict[str, str] | list[Any]) -> NDArray[Any]:
    """The array behind `packed`, `packed_grid` and `broken`; for tables, exports and tests."""
    if isinstance(packed_values, list):
        return np.asarray(packed_values, np.float64)
    flat = np.frombuffer(base64.b64decode(packed_values["bdata"]), f"<{packed_values['dtype']}")
    shape = packed_values.get("shape")
    return flat if shape is None else flat.reshape([int(size) for size in shape.split(",")])
