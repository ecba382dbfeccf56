"""What else kept the machine busy: a run that shares its processors is slow for no reason of its own."""

from __future__ import annotations

import numpy as np

from halfscope_server.compare.fairness.base import Check, Confounds, Finding, environment
from halfscope_server.query.format import MISSING, number
from halfscope_server.query.view import RunView

SERIES = "host.other_load"
FEW_CORES = 0.5
"""Less than this is what any system does beside."""
FEW_SHARE = 0.1
"""Of the machine's processors."""


class _Load:
    id, title, order = "load", "Other load on the machine", 64
    confounds: tuple[Confounds, ...] = ("speed",)
    is_intended = is_configuration = False

    def words(self, view: RunView) -> str:
        load = _load(view)
        return MISSING if load is None else f"{number(round(load, 1))} cores"

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        one, two = _load(baseline), _load(other)
        if one is None or two is None:
            return Finding(state="unknown", text="what else ran on the machine was not recorded")
        if abs(one - two) <= max(FEW_CORES, FEW_SHARE * _num_cores(baseline)):
            return Finding(state="same")
        return Finding(
            state="different",
            text=f"other programs used {number(round(two, 1))} against {number(round(one, 1))} cores",
        )


def _load(view: RunView) -> float | None:
    """The median over the whole run."""

    def read() -> float | None:
        for series in view.named(SERIES)[:1]:
            value = view.store.points(view.run_id, series.series_id).value
            value = value[np.isfinite(value)]
            return float(np.median(value)) if value.size else None
        return None

    return view.memo("other load", read)


def _num_cores(view: RunView) -> int:
    found = environment(view, "num_cpus")
    return found if isinstance(found, int) else 1


CHECK: Check = _Load()
