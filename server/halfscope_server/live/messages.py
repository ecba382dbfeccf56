"""Messages to viewers, as plain data that JSON can hold.

Owns their shapes, which mirror `api.live_models.ServerMessage`. Must not import fastapi. Invariant: one panel that
fails costs one error message; the others of the same tick are sent.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from halfscope.wire.messages import Live

from halfscope_server import panels
from halfscope_server.compare.comparison import Comparison
from halfscope_server.panels import compared
from halfscope_server.query import RunView, Strip, Window, health_strip, summarise, underflow_strip
from halfscope_server.query.format import integer, number
from halfscope_server.query.summary import RunList
from halfscope_server.ranks.types import RanksReport

Message = dict[str, Any]

logger = logging.getLogger(__name__)


def plain_strip(strip: Strip | None) -> dict[str, Any] | None:
    """A strip for JSON, whose keys are text."""
    if strip is None:
        return None
    data = asdict(strip)
    data["texts"] = {str(cell): text for cell, text in strip.texts.items()}
    return data


def run_message(
    view: RunView, strip_bins: int, catching_up_s: float | None, at_us: int, ahead: str | None = None
) -> Message:
    """A run's summary, and both lanes of its strip.

    Args:
        ahead: where the training is, while what is stored is behind it.
    """
    return {
        "type": "run",
        "summary": asdict(summarise(view, None, at_us)),
        "strip": plain_strip(health_strip(view, strip_bins)),
        "underflow": plain_strip(underflow_strip(view, strip_bins)),
        "num_frames": view.num_frames,
        "num_events": sum(view.event_counts.values()),
        "catching_up_s": catching_up_s,
        "ahead": ahead,
    }


def newest_words(view: RunView, frame: Live, sids: Mapping[int, int]) -> str:
    """What an agent tells beside its backlog, for a line of text: its step, and the loss.

    Args:
        sids: number within the frame's stream -> id of the series.
    """
    ids = {row.series_id for row in view.named("loss")}
    losses = [value for sid, value in sorted(frame.values.items()) if sids.get(sid) in ids]
    return ", ".join([f"step {integer(frame.step)}", *(f"loss {number(loss)}" for loss in losses[:1])])


def runs_message(runs: RunList) -> Message:
    """The table of runs."""
    rows = []
    for summary in runs.runs:
        row = asdict(summary)
        row["strip"], row["underflow"] = plain_strip(summary.strip), plain_strip(summary.underflow)
        rows.append(row)
    listing = {"runs": rows, "total": runs.total, "projects": runs.projects, "tags": runs.tags}
    return {"type": "runs", "list": {**listing, "precisions": runs.precisions}}


def compare_message(comparison: Comparison) -> Message:
    """What a comparison says."""
    return {"type": "compare", "report": comparison.report}


def ranks_message(run_id: str, report: RanksReport) -> Message:
    """What is said of a run's ranks."""
    return {"type": "ranks", "run": run_id, "report": report}


def panel_messages(view: RunView, panel_ids: Iterable[str], window: Window) -> list[Message]:
    """The fills of some panels, and an error for each that failed; ids the run does not have yet are left out."""
    available = {panel.id: panel for panel in panels.for_run(view)}
    asked = [available[panel_id] for panel_id in panel_ids if panel_id in available]
    return _fills([(panel.id, panel.title, partial(panels.fill, view, panel, window)) for panel in asked])


def compared_panel_messages(comparison: Comparison, panel_ids: Iterable[str], window: Window) -> list[Message]:
    """Likewise of a comparison."""
    available = {panel.id: panel for panel in compared.available(comparison)}
    asked = [available[panel_id] for panel_id in panel_ids if panel_id in available]
    return _fills([(panel.id, panel.title, partial(compared.fill, comparison, panel, window)) for panel in asked])


def _fills(asked: list[tuple[str, str, Callable[[], dict[str, Any]]]]) -> list[Message]:
    fills, errors = [], []
    for panel_id, title, fill in asked:
        try:
            fills.append(fill())
        except Exception as error:  # noqa: BLE001  a panel may come from anyone; the page keeps its others
            errors.append(failure("panel_failed", f"the panel {title} could not be drawn", error, panel_id))
    return [{"type": "panels", "fills": fills}, *errors] if fills else errors


def deleted_message(run_id: str, name: str, deleted_us: int) -> Message:
    """The run is gone."""
    return {"type": "deleted", "run": run_id, "name": name, "deleted_us": deleted_us}


def error_message(code: str, detail: str, *, request_id: str = "", panel: str = "") -> Message:
    """Something about the request that went wrong; the rest goes on."""
    request_id = request_id or secrets.token_hex(8)
    return {"type": "error", "code": code, "detail": detail, "request_id": request_id, "panel": panel}


def failure(code: str, detail: str, error: BaseException, panel: str = "") -> Message:
    """An error message whose request id finds the traceback in the log; the text of the exception stays there."""
    message = error_message(code, detail, panel=panel)
    logger.error("request %s: %s", message["request_id"], detail, exc_info=error)
    return message
