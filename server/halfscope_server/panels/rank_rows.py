"""Rows of charts of ranks or buckets: their labels, the nodes that they stand on, and the room that all of it takes.

Must not read values. Invariant: where ranks stand on several nodes each node is named at most once, and of rows that
are too many to be named those that are lie evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halfscope_server.panels.base import escape
from halfscope_server.panels.columns import CHAR_PX
from halfscope_server.query.format import integer, shortened
from halfscope_server.query.ranks import Cells, node_starts
from halfscope_server.query.window import Window

MOST_LABELS = 16
LEAST_ROWS_PARTED = 3
"""Nodes of fewer rows are told apart by their labels: lines between them would hide what they part."""
NARROW_PX = 600
NAME_CHARS, NARROW_NAME_CHARS = 16, 9
BESIDE_LABELS_PX = 30
"""The title of the rows, turned, and what lies between it, the labels and the cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How rows are labelled."""

    title: str
    ticks: Mapping[int, str]
    """Row to label."""
    parted: Sequence[int]
    """Rows above which there is a line."""

    @property
    def width_px(self) -> int:
        """What labels and title take."""
        return BESIDE_LABELS_PX + round(CHAR_PX * max(map(len, self.ticks.values()), default=1))

    def axis(self, num_rows: int) -> dict[str, Any]:
        """Layout of the axis."""
        return {
            "range": [num_rows - 0.5, -0.5],
            "tickmode": "array",
            "tickvals": list(self.ticks),
            "ticktext": [escape(label) for label in self.ticks.values()],
            "title": {"text": self.title},
        }

    def shapes(self) -> list[dict[str, Any]]:
        """The lines between nodes."""
        line = {"type": "line", "name": "role:panel", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 2}}
        return [{**line, "y0": row - 0.5, "y1": row - 0.5} for row in self.parted]


def rows_of(cells: Cells, row_name: str, hosts: Mapping[int, str], window: Window) -> Rows:
    """Labels of what is drawn.

    Args:
        hosts: the node of each rank; empty where rows are not ranks.
    """
    num_rows = int(cells.first_name.size)
    nodes = node_starts(cells.first_name, hosts).tolist() if hosts else [0]
    if len(nodes) < 2:
        return Rows(title=row_name, ticks={row: row_label(cells, row) for row in _evenly(range(num_rows))}, parted=())
    num_chars = NAME_CHARS if window.width_px >= NARROW_PX else NARROW_NAME_CHARS
    # Of a full name the domain is the same on every node.
    names = [shortened(hosts[rank].partition(".")[0], num_chars) for rank in cells.first_name[nodes].tolist()]
    if num_rows <= MOST_LABELS:
        ticks = {row: row_label(cells, row) for row in range(num_rows)}
        ticks |= {row: f"{name} · {ticks[row]}" for row, name in zip(nodes, names, strict=True)}
        return Rows(title=row_name, ticks=ticks, parted=nodes[1:])
    ends = [*nodes[1:], num_rows]
    middles = [(first + end - 1) // 2 for first, end in zip(nodes, ends, strict=True)]
    chosen = _evenly(range(len(nodes)))
    is_parted = num_rows >= LEAST_ROWS_PARTED * len(nodes)
    return Rows(
        title="node",
        ticks={middles[at]: names[at] for at in chosen},
        parted=nodes[1:] if is_parted else (),
    )


def _evenly(places: range) -> range:
    """At most `MOST_LABELS` of them."""
    return places[:: -(-len(places) // MOST_LABELS) or 1]


def row_label(cells: Cells, row: int) -> str:
    """`3`, or `16–31`."""
    first, last = int(cells.first_name[row]), int(cells.last_name[row])
    return integer(first) if first == last else f"{integer(first)}–{integer(last)}"
