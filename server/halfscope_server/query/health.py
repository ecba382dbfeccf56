"""The verdict on a run: one word, and one line for each reason.

Owns what counts as unhealthy. Must not import plotly. Invariant: settling and probe skips, and whatever else a healthy
scaler does, never make a run unhealthy; NaN or Inf that was applied always does, however long ago.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from halfscope_server.query.events import origin_words
from halfscope_server.query.format import integer, layer_words, listing, plural, power_of_two, share, step_range
from halfscope_server.query.kinds import SEVERITIES
from halfscope_server.query.skips import SETTLING, STREAK, Streak
from halfscope_server.query.states import error_text
from halfscope_server.query.strip import APPLIED, LOSS_APPLIED, LOSS_CAUGHT
from halfscope_server.query.underflow import WARNING_SHARE, flushed_now, run_underflow, worst_recent
from halfscope_server.query.updates import update_moments
from halfscope_server.query.view import RunView

Word = Literal["healthy", "settling", "unhealthy", "failed", "waiting", "unknown"]
Severity = Literal["ok", "info", "warning", "critical"]

SETTLED_AFTER = 50
"""Clean steps in a row after which a scale has settled; the agent's own rule."""
OLD_SHARE = 0.002
"""Share of steps in streaks, or with a loss that was not finite, from which on a run is unhealthy however long ago."""
MAX_TOLD = 100
"""Events read to name the layers whose updates were lost."""
LOST_SHARE = 0.25
"""Of a layer that was told to lose its updates, below which it has recovered; the agent's own rule."""
POISONED_TAIL = 20
"""So many losses on end, all non-finite after a non-finite step was applied: the weights are lost."""
_JUDGED_SERIES = ("loss", "grad.norm", "amp.scale", "amp.skipped")
_WARNING_KINDS = {
    "update_missing": "scaler.update() is missing after scaler.step(): the scale cannot move",
    "unwatched_scaler": "a scaler that was not given to watch() steps a watched optimizer: it is watched since then",
    "unwatched_optimizer": "the scaler steps an optimizer that was not given to watch(): its skips are not seen",
    "lost": "some records were lost: the picture has gaps",
}
_CRITICAL_KINDS = {"half_precision_parameters": "parameters in half precision under a loss scaler"}
_INFO_KINDS = {"agent_degraded": "a probe failed and was detached; training was not touched"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Mirrors the API."""

    word: Word
    severity: Severity
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reason:
    severity: Severity
    text: str
    is_over: bool = False
    """What goes on is told before it, where there is room for some only."""


def judge(view: RunView) -> Health:
    """The verdict on a run as it stands."""
    row = view.row
    reasons = view.memo("health reasons", lambda: _numeric_reasons(view))
    if row.state == "failed":
        error = error_text(row.error_type, row.error_message) or "an exception ended it"
        return _verdict("failed", [_Reason(severity="critical", text=error[:300]), *reasons])
    if row.state == "killed":
        where = f" after step {integer(row.last_step)}" if row.last_step is not None else " before its first step"
        return _verdict("failed", [_Reason(severity="critical", text=f"its process vanished{where}"), *reasons])
    if view.span is None:
        return _verdict("waiting", reasons)
    poisoned = view.memo("poisoned", lambda: _poisoned(view))
    if poisoned:
        return _verdict("failed", [_Reason(severity="critical", text=poisoned), *reasons])
    if any(reason.severity in ("warning", "critical") for reason in reasons):
        return _verdict("unhealthy", reasons)
    if row.state in ("live", "waiting") and _is_settling(view):
        text = "the loss scale is still settling: skips are normal until 50 clean steps in a row"
        return _verdict("settling", [_Reason(severity="info", text=text), *reasons])
    if not view.has(*_JUDGED_SERIES):
        text = "no loss, gradient norm or loss scale is recorded"
        return _verdict("unknown", [_Reason(severity="info", text=text), *reasons])
    return _verdict("healthy", reasons)


def _verdict(word: Word, reasons: list[_Reason]) -> Health:
    order = [*reversed(SEVERITIES), "ok"]
    ranked = sorted(reasons, key=lambda reason: (order.index(reason.severity), reason.is_over))
    fallback: Severity = "info" if word in ("settling", "unknown", "waiting") else "ok"
    return Health(
        word=word, severity=ranked[0].severity if ranked else fallback, reasons=[reason.text for reason in ranked]
    )


def _numeric_reasons(view: RunView) -> list[_Reason]:
    reasons = [*_applied_reasons(view), *_streak_reasons(view), *_caught_reasons(view), *_scale_reasons(view)]
    reasons += [*_underflow_reasons(view), *_lost_update_reasons(view), *_input_reasons(view)]
    for severity, kinds in (("critical", _CRITICAL_KINDS), ("warning", _WARNING_KINDS), ("info", _INFO_KINDS)):
        reasons += [
            _Reason(severity=severity, text=text)  # type: ignore[arg-type]  # the three words of the tuple above
            for kind, text in kinds.items()
            if view.event_counts.get(kind)
        ]
    return reasons


def _applied_reasons(view: RunView) -> list[_Reason]:
    applied = view.bad.of(APPLIED, LOSS_APPLIED)
    if not applied.size:
        return []
    first, count = int(applied.step[0]), applied.size
    where = f"at step {integer(first)}" if count == 1 else f"in {plural(count, 'step')}, first at step {integer(first)}"
    return [_Reason(severity="critical", text=f"NaN or Inf was applied {where}")]


def _caught_reasons(view: RunView) -> list[_Reason]:
    caught = view.bad.of(LOSS_CAUGHT)
    if not caught.size:
        return []
    last = int(caught.step[-1])
    share_caught = caught.size / max(1, view.num_attempted_steps)
    grave = last >= view.recent_from or share_caught > OLD_SHARE
    text = f"the loss was NaN or Inf in {plural(caught.size, 'step')}, last at step {integer(last)}"
    text += "; none of it reached the weights"
    is_over = last < view.recent_from or (bool(view.streaks) and not view.streaks[-1].is_open)
    return [_Reason(severity="warning" if grave else "info", text=text, is_over=is_over)]


def _streak_reasons(view: RunView) -> list[_Reason]:
    streaks = view.streaks
    if not streaks:
        return []
    skipped = view.skips.of(STREAK)
    newest, recent = streaks[-1], view.recent_from
    if newest.is_open and view.row.state in ("live", "waiting"):
        return [_Reason(severity="warning", text=_streak_text(newest, skipped.size, "since", view))]
    grave = newest.is_open or newest.last_step >= recent
    grave = grave or skipped.size / max(1, view.num_attempted_steps) > OLD_SHARE
    text = _streak_text(newest, skipped.size, "from", view)
    return [_Reason(severity="warning" if grave else "info", text=text, is_over=not newest.is_open)]


def _streak_text(newest: Streak, num_skipped: int, word: str, view: RunView) -> str:
    """`a streak of skips since step 1,204 (88 skips)`, with its origin where that is known."""
    place = f"{word} step {integer(newest.first_step)}"
    if word == "from":
        place += f" to {integer(newest.last_step)}"
    skips = plural(num_skipped, "skip")
    if len(view.streaks) > 1:
        text = f"{plural(len(view.streaks), 'streak')} of skips ({skips}), the last {place}"
    else:
        text = f"a streak of skips {place} ({skips})"
    origin = origin_words(newest.origin, newest.origin_layer).rstrip(".")
    return f"{text}; {origin[:1].lower()}{origin[1:]}" if origin else text


def _scale_reasons(view: RunView) -> list[_Reason]:
    scale = view.latest("amp.scale_next")
    scale = view.latest("amp.scale") if scale is None else scale
    if scale is None or not scale < 1:
        return []
    text = f"the loss scale fell to {power_of_two(scale)}, below 1: it makes gradients smaller"
    text += " and cannot be what overflows"
    return [_Reason(severity="warning", text=text)]


def _underflow_reasons(view: RunView) -> list[_Reason]:
    """Underflow of the worst layer of late; a prediction is information, whatever its size."""
    underflow, worst = run_underflow(view), worst_recent(view)
    flushed, gone = _flushed_reasons(view), flushed_now(view)
    if underflow is None or worst is None or worst.share <= WARNING_SHARE or (gone and worst.name in gone.names):
        return flushed
    place = f"{layer_words(worst.name)} in {step_range(worst.first_step, worst.last_step)}"
    if underflow.is_measured:
        text = f"underflow: at least {share(worst.share)} of the gradient of {place} was lost"
        return [_Reason(severity="warning", text=text), *flushed]
    text = f"FP16 would lose at least {share(worst.share)} of the gradient of {place} (predicted; nothing is lost here)"
    return [_Reason(severity="info", text=text), *flushed]


def _flushed_reasons(view: RunView) -> list[_Reason]:
    """Layers that had gradients and are all zero, while they are."""
    count = view.event_counts.get("layer_flushed", 0)
    if not count:
        return []
    still = flushed_now(view)
    if still is not None:
        names = listing(still.names, 1)
        text = f"every gradient of {names} is zero since step {integer(still.since)}; it had others before"
        return [_Reason(severity="warning", text=text)]
    (newest,) = view.store.events(view.run_id, kinds=("layer_flushed",), limit=1, newest_first=True)
    names = listing([str(name) for name in newest.where], 1)
    text = f"every gradient of {names} was zero at step {integer(newest.step)}; it has recovered"
    return [_Reason(severity="info", text=text)]


def _lost_update_reasons(view: RunView) -> list[_Reason]:
    """Layers stored in 16 bits or less whose steps are rounded away: of others the agent tells nothing."""
    if not view.event_counts.get("updates_lost"):
        return []
    newest = view.attempts[-1].number if view.attempts else 0
    told = view.store.events(view.run_id, kinds=("updates_lost",), limit=MAX_TOLD, newest_first=True)
    # A training that began anew may have other weights.
    events = [event for event in told if event.attempt == newest]
    if not events:
        return []
    since = min(event.step for event in events)
    shares = {
        str(name): float(lost)
        for event in reversed(events)
        for name, lost in zip(event.where, event.attributes.get("shares", ()), strict=False)
    }
    shares |= _lost_shares(view, shares.keys(), since)
    losing = sorted((name for name in shares if shares[name] >= LOST_SHARE), key=lambda name: -shares[name])
    if losing:
        text = f"{share(shares[losing[0]])} of the updates of {listing(losing, 1)} are lost since step {integer(since)}"
        text += ": the steps are too small for weights stored in so few bits"
        return [_Reason(severity="warning", text=text)]
    names = listing([str(name) for name in events[0].where], 1)
    text = f"most updates of {names} were lost at step {integer(events[0].step)}; it has recovered"
    return [_Reason(severity="info", text=text)]


def _lost_shares(view: RunView, names: Collection[str], since: int) -> dict[str, float]:
    """Of these layers, over the recent sketched steps, at least the newest."""
    moments = update_moments(view)
    if moments is None:
        return {}
    first = min(int(np.searchsorted(moments.step, max(view.recent_from, since))), moments.step.size - 1)
    lost, of = moments.zeros[first:].sum(axis=0), moments.n[first:].sum(axis=0)
    return {name: float(lost[at] / of[at]) for at, name in enumerate(moments.names) if name in names and of[at]}


def _input_reasons(view: RunView) -> list[_Reason]:
    count = view.event_counts.get("input_nonfinite", 0)
    if not count:
        return []
    last = int(view.marks(("input_nonfinite",)).step.max())
    text = f"the input held NaN or Inf in {plural(count, 'step')}, last at step {integer(last)}"
    harmless = last not in view.bad.step and last not in view.skips.step
    if harmless:
        text += "; the step itself was finite"
    return [_Reason(severity="warning" if last >= view.recent_from and not harmless else "info", text=text)]


def _poisoned(view: RunView) -> str:
    """Why the weights are taken for lost, or nothing: NaN was applied, and no finite loss has come since."""
    applied = view.bad.of(APPLIED, LOSS_APPLIED)
    losses = view.named("loss")
    if not applied.size or not losses:
        return ""
    value = view.newest(losses[0])
    if value.size < POISONED_TAIL or np.isfinite(value[-POISONED_TAIL:]).any():
        return ""
    finite = np.flatnonzero(np.isfinite(value))
    # Only the newest steps were read; without a finite one among them it may have begun earlier.
    length = int(value.size - 1 - finite[-1]) if finite.size else value.size
    more = "" if finite.size else " or more"
    return f"the loss has been NaN or Inf for the last {plural(length, 'step')}{more}: the weights are lost"


def _is_settling(view: RunView) -> bool:
    skips = view.skips
    if not skips.size or not view.attempts or skips.kind[-1] != SETTLING:
        return False
    newest = view.attempts[-1]
    return bool(skips.attempt[-1] == newest.number and newest.span.last_step - skips.step[-1] < SETTLED_AFTER)
