"""Events in words, page by page.

Owns the sentence behind each kind of event and the order of a page. Must not import plotly. Invariant: every event has
a title and a text, whatever its attributes hold; attributes come from outside and are never trusted to have a type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halfscope_server.query.format import (
    MISSING,
    duration,
    integer,
    json_number,
    listing,
    nonfinite_name,
    number,
    plural,
    power_of_two,
    share,
)
from halfscope_server.query.kinds import Severity, as_severity, kind_of
from halfscope_server.query.skips import Streak
from halfscope_server.query.states import error_text
from halfscope_server.query.view import RunView
from halfscope_server.store.types import EventRow

MAX_DETAIL_ITEMS = 64
MOST_READABLE = 1e6
"""Scales from here on are powers of two in sentences: nobody counts their digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventItem:
    """One event; mirrors the API."""

    id: str
    kind: str
    title: str
    text: str
    severity: Severity
    role: str
    mark: str
    step: int
    time_us: int
    rank: int
    attempt: int
    where: list[str]
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """A kind that occurs, with its count; mirrors the API."""

    kind: str
    title: str
    severity: Severity
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Some events and what there is beside them; mirrors the API."""

    events: list[EventItem]
    kinds: list[EventKind]
    total: int
    next_cursor: str | None


class BadCursor(ValueError):
    """A cursor that no page gave out."""


def events_page(
    view: RunView,
    *,
    kinds: Iterable[str] | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    rank: int | None = None,
    cursor: str | None = None,
    limit: int = 200,
    newest_first: bool = False,
) -> EventPage:
    """A page of events in the order (attempt, step, stream, seq), or newest first.

    Args:
        kinds: only these; all without.
        rank: only what this one told, or what the server wrote of it.
        cursor: `next_cursor` of the page before.

    Raises:
        BadCursor: `cursor` is no cursor.
    """
    wanted = None if kinds is None else tuple(dict.fromkeys(kinds))
    counts = view.store.count_events(view.run_id, first_step=first_step, last_step=last_step, rank=rank)
    rows = view.store.events(
        view.run_id,
        kinds=wanted,
        first_step=first_step,
        last_step=last_step,
        rank=rank,
        after=None if cursor is None else _decode_cursor(cursor),
        limit=limit + 1,
        newest_first=newest_first,
    )
    shown = rows[:limit]
    return EventPage(
        events=[describe(row, view.streaks, view.start_number(row.attempt)) for row in shown],
        kinds=[
            EventKind(kind=kind, title=kind_of(kind).title, severity=kind_of(kind).severity, count=count)
            for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            if count
        ],
        total=sum(count for kind, count in counts.items() if wanted is None or kind in wanted),
        next_cursor=_encode_cursor(shown[-1]) if len(rows) > limit else None,
    )


def _encode_cursor(row: EventRow) -> str:
    return f"{row.attempt}.{row.step}.{row.seq}.{row.stream}"


def _decode_cursor(cursor: str) -> tuple[int, int, str, int]:
    parts = cursor.split(".", 3)
    if len(parts) != 4:
        raise BadCursor(f"{cursor!r} is no cursor; pass next_cursor of the page before, unchanged")
    try:
        return int(parts[0]), int(parts[1]), parts[3], int(parts[2])
    except ValueError:
        raise BadCursor(f"{cursor!r} is no cursor; pass next_cursor of the page before, unchanged") from None


def describe(row: EventRow, streaks: Iterable[Streak] = (), start_number: int = 0) -> EventItem:
    """An event in words.

    Args:
        streaks: of the run; a skip inside one is shown as part of it whatever its own event said.
        start_number: which start of the run its attempt is, from 0.
    """
    kind = kind_of(row.kind)
    severity = as_severity(row.severity, kind.severity)
    role, title, attributes = kind.role, kind.title, row.attributes
    if row.kind == "skip":
        in_streak = any(s.attempt == row.attempt and s.first_step <= row.step <= s.last_step for s in streaks)
        if in_streak:
            attributes, severity, role = {**attributes, "class": "streak"}, "warning", "streak"
    elif row.kind == "loss_nonfinite":
        name = _float_name(attributes.get("value"))
        title = f"Loss is {name}" if name else title
    elif row.kind == "run_ended":
        title, role = _ending(attributes), "critical" if attributes.get("outcome") == "exception" else role
    row = dataclasses.replace(row, attempt=start_number)
    if "attempt" in attributes:
        attributes = {**attributes, "attempt": start_number}
    write = _WORDS.get(row.kind, _anything)
    return EventItem(
        id=f"{row.stream}.{row.seq}",
        kind=row.kind,
        title=title,
        text=write(row, attributes) or f"{title}.",
        severity=severity,
        role=role,
        mark=kind.mark,
        step=row.step,
        time_us=row.time_us,
        rank=row.rank,
        attempt=row.attempt,
        where=[str(name) for name in row.where],
        details=_plain_mapping(attributes),
    )


# ---- words -----------------------------------------------------------------------------------

_CLASS_WORDS = {
    "settling": "The scale is still settling; this is normal at the start.",
    "probe": "Probe: the first skip at a scale just raised; a healthy scaler makes one now and then.",
    "single": "A single skip.",
    "streak": "Part of a streak of skips.",
}


def _skip(row: EventRow, attributes: Mapping[str, Any]) -> str:
    parts = [_who(row.where), _scale_move(attributes), _CLASS_WORDS.get(str(attributes.get("class")), "")]
    if attributes.get("loss_finite") is False:
        parts.append("The loss itself was not finite, so a smaller scale does not help.")
    parts.append(_layers(attributes))
    return _join(parts)


def _scale_move(attributes: Mapping[str, Any]) -> str:
    before, after = _number(attributes.get("scale")), _number(attributes.get("scale_next"))
    if before is None:
        return "" if after is None else f"Scale now {_scales(after)[0]}."
    if after is None or after == before:
        return f"Scale {_scales(before)[0]}" + (", kept." if after is not None else ".")
    return "Scale {} → {}.".format(*_scales(before, after))


def _scales(*values: float) -> list[str]:
    """Counted out where all are readable so, else all as powers."""
    if all(1 <= value < MOST_READABLE and value == value // 1 for value in values):
        return [f"{int(value):,}" for value in values]
    return [power_of_two(value) for value in values]


def _layers(attributes: Mapping[str, Any]) -> str:
    bad = _names(attributes.get("nonfinite"))
    num_bad = _int(attributes.get("num_nonfinite"), len(bad))
    finite = _int(attributes.get("num_finite"), len(_names(attributes.get("finite"))))
    if not num_bad:
        return ""
    text = f"Non-finite: {listing(bad, 1, num_bad)}"
    return f"{text}; finite: {plural(finite, 'layer')}." if "num_finite" in attributes or finite else f"{text}."


def _move_only(row: EventRow, attributes: Mapping[str, Any]) -> str:
    return _join([_who(row.where), _scale_move(attributes)]) or "The loss scale changed."


def _loss(row: EventRow, attributes: Mapping[str, Any]) -> str:
    name = _float_name(attributes.get("value")) or "not finite"
    if attributes.get("caught"):
        return f"The loss was {name}; nothing of it was written to the weights."
    return f"The loss was {name} and the step was applied: weights and optimizer state may hold NaN or Inf now."


def _applied(row: EventRow, attributes: Mapping[str, Any]) -> str:
    names = [str(name) for name in row.where]
    total = _int(attributes.get("num_nonfinite"), len(names))
    where = f" in {listing(names, 1, total)}" if total else ""
    return f"Gradients were not finite{where} and the step was applied: nothing held it back."


def _input(row: EventRow, attributes: Mapping[str, Any]) -> str:
    num_nan, num_inf = _int(attributes.get("num_nan"), 0), _int(attributes.get("num_inf"), 0)
    counts = [f"{integer(count)} {name}" for count, name in ((num_nan, "NaN"), (num_inf, "Inf")) if count]
    argument = str(attributes.get("argument") or "")
    where = f" {argument}" if argument else ""
    row_words = f", first in row {integer(first)}" if (first := _int(attributes.get("first_row"), -1)) >= 0 else ""
    found = " and ".join(counts) or "NaN or Inf"
    return f"The input{where} held {found}{row_words}: look at the data, not at the precision."


def _flushed(row: EventRow, attributes: Mapping[str, Any]) -> str:
    names = [str(name) for name in row.where]
    what = f"{listing(names, 2)}: every" if names else "Every"
    return f"{what} gradient is zero now, where there were nonzero ones before."


def _updates_lost(row: EventRow, attributes: Mapping[str, Any]) -> str:
    names = [str(name) for name in row.where]
    shares = attributes.get("shares")
    known = [value for value in map(_number, shares) if value is not None] if isinstance(shares, list | tuple) else []
    what = f"{share(max(known))} of the updates" if known else "Most updates"
    where = f" of {listing(names, 2, _int(attributes.get('num_layers'), len(names)))}" if names else ""
    lead = f"up to {what}" if len(known) > 1 else what
    said = f"{lead[0].upper()}{lead[1:]}{where} left the stored weight as it was"
    return f"{said}: its format is too coarse for such steps."


def _streak(row: EventRow, attributes: Mapping[str, Any]) -> str:
    num = _int(attributes.get("num_skips"), 0)
    first = _int(attributes.get("first_step"), row.step)
    how = "in a row" if attributes.get("reason") != "rate" else "within 200 steps"
    parts = [
        f"{plural(num, 'skip')} {how}, since step {integer(first)}." if num else f"Skips since step {integer(first)}."
    ]
    return _join(
        [*parts, origin_words(str(attributes.get("origin", "")), attributes.get("origin_layer")), _layers(attributes)]
    )


def origin_words(origin: str, layer: object) -> str:
    """Where a streak's non-finite gradients came from, in a sentence; empty when that is not known."""
    if origin.startswith("forward"):
        return "The loss was not finite: it began in the forward pass, not yet localised."
    if origin == "backward" and layer:
        return f"It began in the backward pass at {layer}."
    return f"Origin: {origin}." if origin else ""


def _streak_end(row: EventRow, attributes: Mapping[str, Any]) -> str:
    first, last = _int(attributes.get("first_step"), row.step), _int(attributes.get("last_step"), row.step)
    num = _int(attributes.get("num_skips"), 0)
    return f"{plural(num, 'skip')} between steps {integer(first)} and {integer(last)}; clean since."


def _update_missing(row: EventRow, attributes: Mapping[str, Any]) -> str:
    return _join(
        [_who(row.where), "scaler.step() was called without scaler.update() after it, so the scale cannot move."]
    )


def _half_parameters(row: EventRow, attributes: Mapping[str, Any]) -> str:
    names = [str(name) for name in row.where]
    total = _int(attributes.get("num_parameters"), len(names))
    where = f" ({listing(names, 2, total)})" if names else ""
    advice = "keep them in FP32 and let autocast lower the precision"
    return f"Parameters in half precision under a loss scaler{where}: {advice}."


def _unwatched(row: EventRow, attributes: Mapping[str, Any]) -> str:
    seen = "A GradScaler that was not given to watch() steps a watched optimizer"
    return f"{seen}; its scale and skips are recorded from here on. Give it as scaler= from the start."


def _unwatched_optimizer(row: EventRow, attributes: Mapping[str, Any]) -> str:
    seen = f"The scaler steps {attributes.get('optimizer', 'an optimizer')}, which was not given to watch()"
    return f"{seen}: its skips, norms and steps are not recorded. Call watch() again where an optimizer is made anew."


def _degraded(row: EventRow, attributes: Mapping[str, Any]) -> str:
    probe, error = attributes.get("probe", "a probe"), attributes.get("error", "")
    return f"{probe} failed and was detached; training was not touched" + (f": {error}" if error else ".")


def _started(row: EventRow, attributes: Mapping[str, Any]) -> str:
    return f"Attempt {row.attempt + 1} began at step {integer(row.step)}." if row.attempt else "Watching began."


def _resumed(row: EventRow, attributes: Mapping[str, Any]) -> str:
    if attributes.get("of") == "scaler":
        before, now = _number(attributes.get("scale_before")), _number(attributes.get("scale"))
        moved = (
            ""
            if before is None or now is None
            else " at scale {1}, where it had left off at {0}".format(*_scales(before, now))
        )
        return _join([_who(row.where), f"goes on{moved}; load its state."])
    return _join([_who(row.where), "began without the state it had, as if it had never stepped; load its state."])


def _ending(attributes: Mapping[str, Any]) -> str:
    titles = {"finished": "Finished", "exception": "Failed", "killed": "Killed", "superseded": "Superseded"}
    return titles.get(str(attributes.get("outcome")), "Run ended")


def _ended(row: EventRow, attributes: Mapping[str, Any]) -> str:
    error = error_text(str(attributes.get("error_type") or ""), str(attributes.get("message") or ""))
    if error:
        return error
    return f"After step {integer(row.step)}."


def _lost(row: EventRow, attributes: Mapping[str, Any]) -> str:
    told = attributes.get("counts")
    counts = told if isinstance(told, Mapping) else {}
    what = ", ".join(f"{number(_number(n))} {name}" for name, n in counts.items() if name not in _STEPS)
    where = _range(" of steps", counts, _STEPS) or _range("", attributes, ("first_seq", "last_seq"), " of the journal")
    reason = str(attributes.get("reason", "") or "no reason given")
    return f"{what or 'Records'}{where} could not be delivered: {reason}."


def _range(before: str, told: Mapping[str, Any], names: tuple[str, str], behind: str = "") -> str:
    first, last = (_number(told.get(name)) for name in names)
    return "" if first is None or last is None else f"{before} {number(first)} to {number(last)}{behind}"


def _lost_contact(row: EventRow, attributes: Mapping[str, Any]) -> str:
    seen = "Nothing came from the training process any more; it may still be running"
    return f"{seen}. What it records will be filled in when it is back."


def _stalled(row: EventRow, attributes: Mapping[str, Any]) -> str:
    silent_s = _number(attributes.get("silent_s"))
    since = "" if silent_s is None else f" for {duration(silent_s)}"
    return f"The process is there, and no step was completed{since}: it may wait for data, for another rank, or hang."


def _forked(row: EventRow, attributes: Mapping[str, Any]) -> str:
    return "A copy of this run's journal went its own way; its records are kept as a stream of their own."


def _anything(row: EventRow, attributes: Mapping[str, Any]) -> str:
    """A kind this server does not know: its attributes, as they are."""
    pairs = [f"{key} {_value(value)}" for key, value in list(attributes.items())[:8]]
    return _join([_who(row.where), "; ".join(pairs)]) or kind_of(row.kind).title + "."


_STEPS = ("first_step", "last_step")
"""Among the counts of what was lost: where it was."""

_WORDS: dict[str, Callable[[EventRow, Mapping[str, Any]], str]] = {
    "skip": _skip,
    "scale_backoff": _move_only,
    "scale_growth": _move_only,
    "scale_set": _move_only,
    "loss_nonfinite": _loss,
    "nonfinite_applied": _applied,
    "input_nonfinite": _input,
    "layer_flushed": _flushed,
    "updates_lost": _updates_lost,
    "bad_streak": _streak,
    "bad_streak_end": _streak_end,
    "update_missing": _update_missing,
    "half_precision_parameters": _half_parameters,
    "unwatched_scaler": _unwatched,
    "unwatched_optimizer": _unwatched_optimizer,
    "agent_degraded": _degraded,
    "run_started": _started,
    "resumed_without_state": _resumed,
    "run_ended": _ended,
    "lost": _lost,
    "lost_contact": _lost_contact,
    "stalled": _stalled,
    "forked": _forked,
    "journal_forked": _forked,
}


# ---- values from outside ---------------------------------------------------------------------


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)


def _who(where: Iterable[str]) -> str:
    names = [str(name) for name in where]
    return f"{listing(names, 1)}:" if names else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: object, otherwise: int) -> int:
    found = _number(value)
    return int(found) if found is not None and abs(found) < 2**62 else otherwise


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def _float_name(value: object) -> str:
    """`NaN`, `+Inf` or `-Inf` for what an event calls its value."""
    if isinstance(value, float):
        return nonfinite_name(value)
    return {"NaN": "NaN", "nan": "NaN", "Infinity": "+Inf", "inf": "+Inf", "-Infinity": "-Inf", "-inf": "-Inf"}.get(
        str(value), ""
    )


def _value(value: object) -> str:
    if value is None:
        return MISSING
    found = _number(value)
    return number(found) if found is not None else str(value)[:200]


def _plain_mapping(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): plain(value) for key, value in list(attributes.items())[:MAX_DETAIL_ITEMS]}


def plain(value: Any) -> Any:
    """A value that JSON can hold: non-finite numbers by name, bytes as hex, anything else that is not plain as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)  # JavaScript's numbers hold 53 bits.
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)
