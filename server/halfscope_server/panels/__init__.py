"""The charts of a run page: found by scanning this folder, drawn by Plotly, coloured by role.

A module with a `PANEL` is a panel; add one and it appears, tested by the contract test. `metrics` makes a panel for
every series that none of them draws. Callers use `for_run`, `find`, `figure`, `fill` and `table`; figures leave as
plain data, so nobody above needs plotly. Invariant: the same structure gives the same skeleton and skeleton_id.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import threading
from collections import OrderedDict
from functools import cache
from typing import Any

from halfscope_server.panels.base import Fill, Panel, Table
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

_MAX_SKELETONS = 512
_skeletons: OrderedDict[str, dict[str, Any]] = OrderedDict()
_lock = threading.Lock()


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


def info(panel: Panel) -> dict[str, Any]:
    """Shaped like `api.models.PanelInfo`."""
    return {
        "id": panel.id,
        "title": panel.title,
        "section": panel.section,
        "columns": panel.columns,
        "height_px": panel.height_px,
        "order": panel.order,
        "folded_on_phone": panel.folded_on_phone,
    }


def fill(view: RunView, panel: Panel, window: Window) -> dict[str, Any]:
    """A window's arrays, shaped like `api.models.PanelFill`; computed once per view for all who ask."""
    # The row is part of the key: its name is in the label, and a live run's axis has room to grow.
    key = ("fill", panel.id, window, view.row.name, view.row.state)
    filled = view.memo(key, lambda: panel.fill(view, window))
    return {
        "run": view.run_id,
        "panel": panel.id,
        "skeleton_id": skeleton_id(view, panel),
        "data": filled.data,
        "layout": filled.layout,
        "label": filled.label,
        "headline": filled.headline,
        "empty": filled.empty,
        "first_step": filled.first_step,
        "last_step": filled.last_step,
    }


def figure(view: RunView, panel: Panel, window: Window) -> dict[str, Any]:
    """A panel whole, shaped like `api.models.PanelFigure`."""
    return {"info": info(panel), "skeleton": skeleton(view, panel), "fill": fill(view, panel, window)}


def table(view: RunView, panel: Panel, window: Window) -> Table:
    """The numbers of a panel in words."""
    return panel.fill(view, window).table()


def skeleton_id(view: RunView, panel: Panel) -> str:
    """Changes when a fill would no longer fit the skeleton the client has."""
    key = repr((panel.id, panel.title, panel.structure(view)))
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def skeleton(view: RunView, panel: Panel) -> dict[str, Any]:
    """The validated figure as plain data; building one costs 19 times a plain dict, so it is kept."""
    key = skeleton_id(view, panel)
    with _lock:
        found = _skeletons.get(key)
    if found is None:
        found = _plain(panel.skeleton(view).to_dict())
        with _lock:
            _skeletons[key] = found
            while len(_skeletons) > _MAX_SKELETONS:
                _skeletons.popitem(last=False)
    return found


def _plain(figure: dict[str, Any]) -> dict[str, Any]:
    """Without plotly's template: the client has one look for all charts."""
    layout = {key: value for key, value in figure["layout"].items() if key != "template"}
    return {"data": [dict(trace) for trace in figure["data"]], "layout": layout}
