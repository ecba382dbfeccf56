"""What a panel is, and what it gives.

Owns the contract between panels and those who serve them. Must not import fastapi or the store's tables.
Invariant: a skeleton has every trace a fill may name, and a fill is nothing but arrays and numbers laid over it; so a
figure is validated once and a tick costs no validation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import plotly.graph_objects as go

from halfscope_server.query.format import integer
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Window

MAX_TABLE_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The numbers of a chart in words; mirrors the API."""

    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def no_table() -> Table:
    """The table of a chart that shows nothing."""
    return Table(columns=[], rows=[], note="nothing was recorded in this window")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """What changes from tick to tick: `data[i]` is laid over trace i of the skeleton, `layout` over its layout."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    label: str
    """For role=figure: what it shows, over which steps, and the newest state in words."""
    headline: str = ""
    empty: str = ""
    """Why there is nothing to draw and what to do; the chart is then replaced by it."""
    first_step: int | None = None
    last_step: int | None = None
    make_table: Callable[[], Table] = field(default=no_table)

    def table(self) -> Table:
        """The same numbers for "Show as table"."""
        return self.make_table()


S = TypeVar("S", contravariant=True)


class Drawn(Protocol[S]):
    """What a chart has, whatever it is of: a run or several beside each other."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def columns(self) -> int:
        """Width in the grid of 12."""

    @property
    def height_px(self) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def folded_on_phone(self) -> bool: ...

    def available(self, subject: S, /) -> bool:
        """Whether it has anything to show."""

    def structure(self, subject: S, /) -> Hashable:
        """What its skeleton depends on; equal structures have equal skeletons."""

    def skeleton(self, subject: S, /) -> go.Figure:
        """The figure without data, validated by plotly."""

    def fill(self, subject: S, window: Window, /) -> Fill:
        """The arrays of a window."""


class Panel(Drawn[RunView], Protocol):
    """One chart of the run page."""

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the series it draws: the generic panels leave these alone."""


def escape(text: str) -> str:
    """A name from outside as plotly may show it: no markup, no link, no formula, no placeholder.

    Plotly reads a subset of HTML, `$...$` as TeX where MathJax is present, and `%{...}` in hover texts.
    """
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;"), ("{", "&#123;")):
        text = text.replace(raw, safe)
    return text


def thin_rows(rows: list[list[str]], what: str = "rows") -> tuple[list[list[str]], str]:
    """At most `MAX_TABLE_ROWS` evenly chosen rows, always with the last, and a note that says so."""
    if len(rows) <= MAX_TABLE_ROWS:
        return rows, ""
    places = sorted({round(k * (len(rows) - 1) / (MAX_TABLE_ROWS - 1)) for k in range(MAX_TABLE_ROWS)})
    return [rows[place] for place in places], f"{integer(len(places))} of {integer(len(rows))} {what}"
