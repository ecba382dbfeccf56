"""What a panel of a comparison is: like one of a run, over several runs at once.

Must not import fastapi. Invariant: as of `panels.base`; and the runs are drawn in the order of the comparison, the
baseline's line first and thus beneath the others.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import plotly.graph_objects as go

from halfscope_server.compare.comparison import Comparison
from halfscope_server.panels.base import Fill
from halfscope_server.query.window import Window


class ComparePanel(Protocol):
    """One chart of the page of a comparison."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def section(self) -> str:
        """`quality`, `cost`, `stability` or `layer` (the chosen layer)."""

    @property
    def columns(self) -> int:
        """Width in the grid of 12."""

    @property
    def height_px(self) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def folded_on_phone(self) -> bool: ...

    def available(self, comparison: Comparison, /) -> bool:
        """Whether it has anything to show of these runs."""

    def structure(self, comparison: Comparison, /) -> Hashable:
        """What its skeleton depends on; equal structures have equal skeletons."""

    def skeleton(self, comparison: Comparison, /) -> go.Figure:
        """The figure without data, validated by plotly."""

    def fill(self, comparison: Comparison, window: Window, /) -> Fill:
        """The arrays of a window, whose ends count what the runs are aligned by."""
