"""The gradient scaler: goes with the precision."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from halfscope_server.compare.fairness.base import ValueCheck, fact
from halfscope_server.query.format import integer, power_of_two
from halfscope_server.query.view import RunView

SETTINGS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


def _scalers(view: RunView) -> Hashable | None:
    found = fact(view, "scalers")
    if not isinstance(found, list):
        return None
    return tuple(
        tuple(item.get(name) for name in SETTINGS)
        for item in found
        if isinstance(item, Mapping) and item.get("enabled", True)
    )


def _tell(scalers: tuple[tuple[Any, ...], ...]) -> str:
    told = [
        f"from {power_of_two(init)}, grows every {integer(interval)} steps"
        for init, _, _, interval in scalers
        if isinstance(init, float) and isinstance(interval, int)
    ]
    return "; ".join(told) or ("none" if not scalers else "a scaler")


CHECK = ValueCheck(id="scaler", title="Loss scaler", order=1, read=_scalers, tell=_tell, is_intended=True)
