"""Skeletons as plain data, built once per structure whatever they are of: a run or a comparison.

Must not import fastapi. Invariant: the same panel and structure give the same skeleton and skeleton_id.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Any, TypeVar

from halfscope_server.panels.base import Drawn, Fill

MAX_SKELETONS = 512

S = TypeVar("S")
_skeletons: OrderedDict[str, dict[str, Any]] = OrderedDict()
_lock = threading.Lock()


def info(panel: Drawn[Any]) -> dict[str, Any]:
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


def filled(subject: S, panel: Drawn[S], key: str, fill: Fill) -> dict[str, Any]:
    """A window's arrays, shaped like `api.models.PanelFill`.

    Args:
        key: what the fill is of: a run's id, or the ids of several.
    """
    return {
        "run": key,
        "panel": panel.id,
        "skeleton_id": skeleton_id(subject, panel),
        "data": fill.data,
        "layout": fill.layout,
        "label": fill.label,
        "headline": fill.headline,
        "empty": fill.empty,
        "first_step": fill.first_step,
        "last_step": fill.last_step,
    }


def skeleton_id(subject: S, panel: Drawn[S]) -> str:
    """Changes when a fill would no longer fit the skeleton the client has."""
    key = repr((panel.id, panel.title, panel.structure(subject)))
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def skeleton(subject: S, panel: Drawn[S]) -> dict[str, Any]:
    """The validated figure as plain data; building one costs 19 times a plain dict, so it is kept."""
    key = skeleton_id(subject, panel)
    with _lock:
        found = _skeletons.get(key)
    if found is None:
        found = _plain(panel.skeleton(subject).to_dict())
        with _lock:
            _skeletons[key] = found
            while len(_skeletons) > MAX_SKELETONS:
                _skeletons.popitem(last=False)
    return found


def _plain(figure: dict[str, Any]) -> dict[str, Any]:
    """Without plotly's template: the client has one look for all charts."""
    layout = {key: value for key, value in figure["layout"].items() if key != "template"}
    return {"data": [dict(trace) for trace in figure["data"]], "layout": layout}
