"""Figures with colours for pages that have no client of ours: every colour is a token that names its role.

A token is `role(NAME)` or `role(NAME,OPACITY)`; the page's few lines of script put in the colour of the theme that the
reader's system asks for. Must not import fastapi. Invariant: no colour leaves here but as a token, so one figure serves
both themes; and it is painted as `web/src/chart/figure.ts` does it (`painting.json` beside that is held to by both).
"""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]

AREA_OPACITY = 0.16
WORDS_OPACITY = 0.82
FINE_DECADES = 2.5
MOST_DECADE_TICKS = 6
_AXIS = re.compile(r"[xy]axis\d*")
_FONT = {"family": "system-ui, sans-serif", "size": 12}


def painted(figure: Json) -> Json:
    """A served figure (skeleton and fill) as plotly draws it, colours as tokens."""
    skeleton, fill = figure["skeleton"], figure["fill"]
    traces = zip(skeleton["data"], fill["data"], strict=True)
    data = [_trace(merged(trace, over)) for trace, over in traces]
    layout = merged(_house(), merged(skeleton["layout"], fill["layout"]))
    layout["height"] = figure["info"]["height_px"]
    for name in {"xaxis", "yaxis", *filter(_AXIS.fullmatch, layout)}:
        layout[name] = _axis(layout.get(name, {}))
    layout["shapes"] = [_shape(shape) for shape in layout.get("shapes", [])]
    layout["annotations"] = [_annotation(one) for one in layout.get("annotations", [])]
    layout.pop("template", None)  # plotly.py writes its own into every figure
    return {"data": data, "layout": layout}


def merged(under: Json, over: Json) -> Json:
    """`over` laid over `under`; arrays, also packed ones, are replaced whole."""
    result = dict(under)
    for key, value in over.items():
        old = result.get(key)
        deep = isinstance(value, dict) and isinstance(old, dict) and "bdata" not in value
        result[key] = merged(old, value) if deep and isinstance(old, dict) else value
    return result


def token(role: str, opacity: float | None = None) -> str:
    """A colour to be."""
    return f"role({role})" if opacity is None else f"role({role},{opacity})"


def _trace(trace: Json) -> Json:
    role = trace.get("meta", {}).get("role")
    if role is None:
        return trace
    color = {"color": token(role)}
    own = trace.get("type", "scatter")
    result = {key: value for key, value in trace.items() if key not in ("line", "marker")}
    if own != "heatmap":
        result["marker"] = color | trace.get("marker", {})
    if own not in ("bar", "histogram", "heatmap"):
        result["line"] = color | trace.get("line", {})
    if "text" in trace.get("mode", ""):
        result["textfont"] = color | trace.get("textfont", {})
    if trace.get("fill", "none") != "none":
        result.setdefault("fillcolor", token(role, AREA_OPACITY))
    return result


def _shape(shape: Json) -> Json:
    role = _role(shape)
    if role is None:
        return shape
    line = {"color": token(role)} | shape.get("line", {})
    if shape["type"] != "rect":
        return {**shape, "line": line}
    return {**shape, "fillcolor": token(role, AREA_OPACITY), "line": {"width": 0} | line}


def _annotation(annotation: Json) -> Json:
    role = _role(annotation)
    if role is None:
        return annotation
    font = {"color": token(role)} | annotation.get("font", {})
    return {"bgcolor": token("panel", WORDS_OPACITY), "borderpad": 1, **annotation, "font": font}


def _role(item: Json) -> str | None:
    name = str(item.get("name", ""))
    return name.removeprefix("role:") if name.startswith("role:") else None


def _house() -> Json:
    """What every chart looks like, whatever it shows."""
    return {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {**_FONT, "color": token("muted")},
        "margin": {"l": 40, "r": 14, "t": 8, "b": 28},
        "hoverlabel": {
            "bgcolor": token("panel"),
            "bordercolor": token("line"),
            "font": {**_FONT, "color": token("text")},
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"color": token("muted")}},
    }


def _axis(axis: Json) -> Json:
    line = token("line")
    look: Json = {
        "gridcolor": line,
        "linecolor": line,
        "zerolinecolor": line,
        "tickcolor": line,
        "automargin": True,
        "separatethousands": True,
        "title": {"standoff": 8},
    }
    if axis.get("type") == "log" and "range" in axis:
        decades = abs(axis["range"][1] - axis["range"][0])
        look["tickformat"] = "~g"
        look["dtick"] = "D2" if decades <= FINE_DECADES else -(-int(decades + 0.999) // MOST_DECADE_TICKS)
    return merged(look, axis)
