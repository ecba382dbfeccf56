"""Reading runs: what pages, tables and exports are made of.

`Views(store).get(run_id)` gives the newest `RunView`; the functions here take one. Everything returned is a frozen
dataclass shaped like its namesake in the typed API (`dataclasses.asdict` of it validates there). Must not import
plotly, fastapi or sqlalchemy.
"""

from halfscope_server.query.events import BadCursor, EventItem, EventKind, EventPage, describe, events_page
from halfscope_server.query.export import export_rows
from halfscope_server.query.health import Health
from halfscope_server.query.lane import underflow_strip
from halfscope_server.query.layers import LayerNode, LayerTree, layer_tree
from halfscope_server.query.lines import Line, read_line
from halfscope_server.query.rug import Rug, RugMark, event_rug
from halfscope_server.query.sections import ConfigEntry, ConfigSection, config_sections
from halfscope_server.query.strip import Strip, StripClass, StripRange
from halfscope_server.query.summary import Chip, RunList, RunSummary, Skips, health_strip, list_runs, summarise
from halfscope_server.query.view import RunView, Views
from halfscope_server.query.window import Span, Window

__all__ = [
    "BadCursor",
    "Chip",
    "ConfigEntry",
    "ConfigSection",
    "EventItem",
    "EventKind",
    "EventPage",
    "Health",
    "LayerNode",
    "LayerTree",
    "Line",
    "Rug",
    "RugMark",
    "RunList",
    "RunSummary",
    "RunView",
    "Skips",
    "Span",
    "Strip",
    "StripClass",
    "StripRange",
    "Views",
    "Window",
    "config_sections",
    "describe",
    "event_rug",
    "events_page",
    "export_rows",
    "health_strip",
    "layer_tree",
    "list_runs",
    "read_line",
    "summarise",
    "underflow_strip",
]
