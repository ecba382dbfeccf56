"""The charts of a run page: found by scanning this folder, drawn by Plotly, coloured by role.

A module with a `PANEL` is a panel; add one and it appears, tested by the contract test. `metrics` makes a panel for
every series that none of them draws. Callers use `for_run`, `find`, `figure`, `fill` and `table`; figures leave as
plain data, so nobody above needs plotly. Invariant: the same structure gives the same skeleton and skeleton_id.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from halfscope_server.panels import figures
from halfscope_server.panels.base import Fill, Panel, Table
from halfscope_server.panels.figures import info
from halfscope_server.panels.metrics import Metrics, panel_id
from halfscope_server.panels.theme import theme
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Window

__all__ = [
    "Fill",
    "Panel",
    "Table",
    "discover",
    "figure",
    "fill",
    "find",
    "for_run",
    "info",
    "of_series",
    "table",
    "theme",
]


@cache
def discover() -> tuple[Panel, ...]:
    """The panels of this folder, in the order of the page; those that are made per run are not among them."""
    found: list[Panel] = []
    for module in pkgutil.iter_modules(__path__):
        panel = getattr(importlib.import_module(f"{__name__}.{module.name}"), "PANEL", None)
        if panel is not None:
            found.append(panel)
    return tuple(sorted(found, key=lambda panel: (panel.order, panel.id)))


@cache
def _metrics() -> Metrics:
    return Metrics(frozenset(name for panel in discover() for name in panel.series))


def for_run(view: RunView) -> list[Panel]:
    """The panels that have something to show for a run, in the order of the page."""
    available = [panel for panel in discover() if panel.available(view)]
    return sorted([*available, *_metrics().panels(view)], key=lambda panel: (panel.order, panel.id))


def find(view: RunView, panel_id: str) -> Panel | None:
    """The panel of this id, if the run has it."""
    return next((panel for panel in for_run(view) if panel.id == panel_id), None)


def of_series(name: str) -> str:
    """Id of the panel that draws a series, in the runs that have it."""
    return next((panel.id for panel in discover() if name in panel.series), "") or panel_id(name)


def fill(view: RunView, panel: Panel, window: Window) -> dict[str, Any]:
    """A window's arrays, shaped like `api.models.PanelFill`; computed once per view for all who ask."""
    # The row is part of the key: its name is in the label, and a live run's axis has room to grow.
    key = ("fill", panel.id, window, view.row.name, view.row.state)
    return figures.filled(view, panel, view.run_id, view.memo(key, lambda: panel.fill(view, window)))


def figure(view: RunView, panel: Panel, window: Window) -> dict[str, Any]:
    """A panel whole, shaped like `api.models.PanelFigure`."""
    return {"info": info(panel), "skeleton": figures.skeleton(view, panel), "fill": fill(view, panel, window)}


def table(view: RunView, panel: Panel, window: Window) -> Table:
    """The numbers of a panel in words."""
    return panel.fill(view, window).table()
