"""A chart for every series that no other panel draws: what `run.log` brought, and metrics newer than this server.

Invariant: a series is drawn somewhere; a new metric needs no line of code here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from halfscope_server.panels.base import Panel
from halfscope_server.panels.lines import LinePanel, LineSpec
from halfscope_server.query.names import is_own
from halfscope_server.query.view import RunView
from halfscope_server.store.types import SeriesRow

FIRST_USER_ORDER, FIRST_OTHER_ORDER = 200, 900
HEIGHT_PX = 200


class Metrics:
    """Panels for series that are left over."""

    def __init__(self, claimed: frozenset[str]) -> None:
        """
        Args:
            claimed: names that other panels draw.
        """
        self._claimed = claimed

    def panels(self, view: RunView) -> Sequence[Panel]:
        """One panel per name, grouped by the part before the first slash."""
        rows: dict[str, SeriesRow] = {}
        for series in view.series:
            if series.name not in self._claimed:
                rows.setdefault(series.name, series)
        names = sorted(rows, key=lambda name: (group_of(name) != "", group_of(name), name))
        return [_panel(rows[name], place) for place, name in enumerate(names)]


def group_of(name: str) -> str:
    """`train` of `train/accuracy`; empty without a slash."""
    return name.partition("/")[0] if "/" in name else ""


def panel_id(name: str) -> str:
    """An id that is safe in an address, whatever the name."""
    return "metric-" + hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def _panel(series: SeriesRow, place: int) -> LinePanel:
    own = is_own(series.name)
    group = group_of(series.name)
    section = "more measurements" if own else f"your metrics: {group}" if group else "your metrics"
    return LinePanel(
        id=panel_id(series.name),
        title=series.name.partition("/")[2] if group and not own else series.name,
        lines=(LineSpec(name=series.name),),
        y_title=_y_title(series),
        section=section,
        columns=4,
        height_px=HEIGHT_PX,
        order=(FIRST_OTHER_ORDER if own else FIRST_USER_ORDER) + place,
        scale="linear",
        from_zero=series.kind == "counter",
    )


def _y_title(series: SeriesRow) -> str:
    if series.kind == "flag":
        return "share of steps"
    return series.name if series.unit in ("", "1", "share", "s", "bytes") else f"{series.name} ({series.unit})"
