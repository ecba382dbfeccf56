"""Served figures against the rules that every panel keeps to, of a run or of a comparison."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
from halfscope_server import panels
from halfscope_server.api.models import PanelFigure
from halfscope_server.panels.arrays import unpacked
from halfscope_server.query.window import MAX_POINTS

CARTESIAN = {"scatter", "bar", "heatmap", "histogram", "box", "violin", "contour", "image"}
"""Trace types of the bundle that the page loads."""


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As the page lays a fill over a skeleton: nested objects merged, arrays replaced."""
    result = dict(under)
    for key, value in over.items():
        old = result.get(key)
        deep = isinstance(value, dict) and isinstance(old, dict) and "bdata" not in value
        result[key] = merged(old, value) if deep else value
    return result


def numbers_of(trace: dict[str, Any]) -> dict[str, np.ndarray]:
    """Its numeric arrays."""
    return {key: unpacked(trace[key]) for key in ("x", "y", "base", "width") if key in trace}


def check_figure(figure: dict[str, Any], *, validate: bool = True) -> None:
    """A served figure against the rules; whether plotly takes it whole costs most, and depends little on the window."""
    PanelFigure.model_validate(figure)
    json.dumps(figure, allow_nan=False)
    skeleton, fill = figure["skeleton"], figure["fill"]
    assert len(fill["data"]) == len(skeleton["data"])
    traces = [merged(trace, patch) for trace, patch in zip(skeleton["data"], fill["data"], strict=True)]
    layout = merged(skeleton["layout"], fill["layout"])
    if validate:
        emptied = {"x": [], "y": [], "z": [], "base": [], "width": [], "customdata": []}
        drawn = [{**trace, **{key: value for key, value in emptied.items() if key in trace}} for trace in traces]
        go.Figure(data=drawn, layout=layout)
    for trace in traces:
        assert trace["type"] in CARTESIAN
        assert trace["meta"]["role"] in panels.theme()["light"]
        assert "color" not in trace.get("line", {})
        numbers = numbers_of(trace)
        if trace["type"] == "heatmap":
            check_grid(trace, numbers)
        else:
            assert len({array.size for array in numbers.values()}) == 1
        assert all(len(trace["text"]) == numbers["x"].size for key in ("text",) if isinstance(trace.get(key), list))
        for key, array in numbers.items():
            assert array.size <= MAX_POINTS
            # A line may break off; nothing else may be anything but a number.
            breaks = [value is None for value in trace[key]] if isinstance(trace[key], list) else [False]
            assert np.isfinite(array[~np.array(breaks)] if any(breaks) else array).all()
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")) and axis.get("visible", True):
            assert axis["title"]["text"], f"{figure['info']['id']}: {name} says what it counts"
    assert figure["info"]["title"] in fill["label"]
    assert "run" in fill["label"]


def check_grid(trace: dict[str, Any], numbers: dict[str, np.ndarray]) -> None:
    """A heatmap's cells against its axes, which hold the edges of columns, and centers or edges of rows."""
    cells = unpacked(trace["z"])
    if not cells.size:
        assert trace.get("visible") is False
        return
    assert numbers["x"].size == cells.shape[1] + 1
    assert numbers["y"].size - cells.shape[0] in (0, 1)
    assert (np.diff(numbers["x"]) > 0).all()
    assert not np.isinf(cells).any()
