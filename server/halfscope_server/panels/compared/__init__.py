"""The charts of a comparison: found by scanning this folder, like those of a run.

A module with a `PANEL`, or with `PANELS` where there is one for each member, brings them; the contract test runs over
whatever is found. Must not import fastapi. Invariant: a fill's `run` is the comparison's key.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from halfscope_server.compare.comparison import Comparison
from halfscope_server.panels import figures
from halfscope_server.panels.base import Table
from halfscope_server.panels.compared.base import ComparePanel
from halfscope_server.panels.compared.overlay import OverlayPanel
from halfscope_server.panels.figures import info
from halfscope_server.query.window import Window

__all__ = ["ComparePanel", "available", "discover", "figure", "fill", "find", "info", "table"]


@cache
def discover() -> tuple[ComparePanel, ...]:
    """The panels of this folder, in the order of the page."""
    found: list[ComparePanel] = []
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        found += [*getattr(loaded, "PANELS", ()), *([loaded.PANEL] if hasattr(loaded, "PANEL") else [])]
    return tuple(sorted(found, key=lambda panel: (panel.order, panel.id)))


def available(comparison: Comparison) -> list[ComparePanel]:
    """The panels that have something to show, in the order of the page."""
    there = (panel for panel in discover() if panel.available(comparison))
    return [panel.worded(comparison) if isinstance(panel, OverlayPanel) else panel for panel in there]


def find(comparison: Comparison, panel_id: str) -> ComparePanel | None:
    """The panel of this id, if the comparison has it."""
    return next((panel for panel in available(comparison) if panel.id == panel_id), None)


def fill(comparison: Comparison, panel: ComparePanel, window: Window) -> dict[str, Any]:
    """A window's arrays, shaped like `api.models.PanelFill`; computed once per comparison for all who ask."""
    made = comparison.memo(("fill", panel.id, window), lambda: panel.fill(comparison, window))
    return figures.filled(comparison, panel, comparison.key, made)


def figure(comparison: Comparison, panel: ComparePanel, window: Window) -> dict[str, Any]:
    """A panel whole, shaped like `api.models.PanelFigure`."""
    skeleton = figures.skeleton(comparison, panel)
    return {"info": info(panel), "skeleton": skeleton, "fill": fill(comparison, panel, window)}


def table(comparison: Comparison, panel: ComparePanel, window: Window) -> Table:
    """The numbers of a panel in words."""
    return panel.fill(comparison, window).table()
