"""Arrays as plotly.js takes them: typed, little-endian, base64.

Must not import plotly. Invariant: no NaN and no infinity leaves here; plotly draws neither, and JSON cannot hold them.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray


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


def unpacked(packed_values: dict[str, str] | list[float]) -> NDArray[Any]:
    """The array behind `packed`; for tables, exports and tests."""
    if isinstance(packed_values, list):
        return np.asarray(packed_values, np.float64)
    return np.frombuffer(base64.b64decode(packed_values["bdata"]), f"<{packed_values['dtype']}")
