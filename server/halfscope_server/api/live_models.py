"""The typed API: messages of the live websocket, from the client and to it.

Must not import the store. Invariant: as in models.py; and every message says its `type`, by which both unions are told
apart.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from halfscope_server.api.alert_models import LiveAlerts
from halfscope_server.api.compare_models import CompareOptions, RunIds
from halfscope_server.api.models import Model, PanelFill, RunList, RunSummary, Strip, Window
from halfscope_server.compare.types import Report
from halfscope_server.ranks.types import RanksReport


class WatchRuns(Model):
    """Send the Runs table now and whenever it changes."""

    type: Literal["watch_runs"]


class WatchRun(Model):
    """Send this run's summary, strip and these panels now and whenever they change; replaces the former request."""

    type: Literal["watch_run"]
    run: str
    panels: Annotated[list[str], Field(max_length=64)]
    window: Window = Window()
    strip_bins: Annotated[int, Field(ge=10, le=4000)] = 800
    events: bool = False
    """Also tell when there are new events (the page then asks for them)."""
    ranks: bool = False
    """Also send what is said of its ranks."""


class WatchAlerts(Model):
    """Tell of alerts too, whatever else is watched: the numbers now, then every change."""

    type: Literal["watch_alerts"]


class WatchCompare(Model):
    """Send this comparison's report and these of its panels now and whenever one of its runs changes; replaces the
    former request."""

    type: Literal["watch_compare"]
    runs: RunIds
    panels: Annotated[list[str], Field(max_length=64)]
    window: Window = Window()
    """`first` and `last` count what the runs are aligned by; `x` is left out of account."""
    options: CompareOptions = CompareOptions()


class Unwatch(Model):
    """Watch neither runs, a run nor a comparison any longer."""

    type: Literal["unwatch"]


ClientMessage = Annotated[WatchRuns | WatchRun | WatchCompare | WatchAlerts | Unwatch, Field(discriminator="type")]


class LiveRuns(Model):
    type: Literal["runs"]
    list: RunList


class LiveRun(Model):
    type: Literal["run"]
    summary: RunSummary
    strip: Strip | None
    """At the width asked for and over the whole run."""
    underflow: Strip | None = None
    """The lower lane, of the same width."""
    num_frames: int = 0
    """Sketched steps so far; when it changes the layer tree is worth fetching again."""
    num_events: int
    catching_up_s: float | None
    """Seconds of backlog the agent is still sending, or None when it is current."""
    ahead: str | None = None
    """Where the training is by now, in words, while what is shown is behind it."""


class LiveCompare(Model):
    type: Literal["compare"]
    report: Report


class LiveRanks(Model):
    """To who watches a run with `ranks`."""

    type: Literal["ranks"]
    run: str
    report: RanksReport


class LivePanels(Model):
    type: Literal["panels"]
    fills: list[PanelFill]
    """Their `run` is a run's id, or the key of a comparison's report."""


class LiveDeleted(Model):
    type: Literal["deleted"]
    run: str
    name: str
    deleted_us: int


class LiveError(Model):
    """Something about the request, or one panel that failed; the rest goes on."""

    type: Literal["error"]
    code: str
    detail: str
    request_id: str
    panel: str = ""


ServerMessage = Annotated[
    LiveRuns | LiveRun | LiveRanks | LiveCompare | LivePanels | LiveAlerts | LiveDeleted | LiveError,
    Field(discriminator="type"),
]

CLIENT_MESSAGES: tuple[type[Model], ...] = (WatchRuns, WatchRun, WatchCompare, WatchAlerts, Unwatch)
SERVER_MESSAGES: tuple[type[Model], ...] = (
    LiveRuns,
    LiveRun,
    LiveRanks,
    LiveCompare,
    LivePanels,
    LiveAlerts,
    LiveDeleted,
    LiveError,
)
"""The members of the two unions, for the OpenAPI document: websockets have no place of their own there."""
