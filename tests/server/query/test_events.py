"""Events in words, in pages, and on the rug."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from halfscope_server import panels
from halfscope_server.api.models import EventPage as EventPageModel
from halfscope_server.api.models import Rug as RugModel
from halfscope_server.query import BadCursor, EventItem, RunView, Views, describe, event_rug, events_page
from halfscope_server.query.kinds import KINDS, kind_of
from halfscope_server.store.store import Store
from halfscope_server.store.types import EventRow
from hypothesis import given
from hypothesis import strategies as st

WriteRun = Callable[..., Any]


def event(
    kind: str, step: int = 500, severity: str = "info", where: tuple[str, ...] = (), **attributes: Any
) -> EventRow:
    """An event as the store gives it."""
    return EventRow(
        run_id="r",
        stream="s",
        seq=3,
        rank=0,
        attempt=0,
        kind=kind,
        step=step,
        time_us=0,
        severity=severity,
        where=where,
        attributes=attributes,
    )


def view_of(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


SKIP = {
    "class": "probe",
    "scale": 65536.0,
    "scale_next": 32768.0,
    "loss_finite": True,
    "nonfinite": ["block.3.mlp.fc2", "head"],
    "num_nonfinite": 3,
    "num_finite": 14,
}


@pytest.mark.parametrize(
    ("row", "title", "text"),
    [
        (
            event("skip", **SKIP),
            "Skipped step",
            "Scale 65,536 → 32,768. Probe: the first skip at a scale just raised; a healthy scaler makes one now and "
            "then. Non-finite: block.3.mlp.fc2 and 2 more; finite: 14 layers.",
        ),
        (event("scale_growth", scale=32768.0, scale_next=65536.0), "Scale raised", "Scale 32,768 → 65,536."),
        (event("scale_backoff", scale=2.0**-1, scale_next=2.0**-2), "Scale lowered", "Scale 2⁻¹ → 2⁻²."),
        (event("scale_growth", scale=2.0**19, scale_next=2.0**20), "Scale raised", "Scale 2¹⁹ → 2²⁰."),
        (
            event("loss_nonfinite", value="NaN", caught=True),
            "Loss is NaN",
            "The loss was NaN; nothing of it was written to the weights.",
        ),
        (
            event("loss_nonfinite", value="-Infinity", caught=False),
            "Loss is -Inf",
            "The loss was -Inf and the step was applied: weights and optimizer state may hold NaN or Inf now.",
        ),
        (
            event("nonfinite_applied", where=("a", "b")),
            "NaN or Inf applied",
            "Gradients were not finite in a and 1 more and the step was applied: nothing held it back.",
        ),
        (
            event("bad_streak", first_step=498, num_skips=3, reason="in_a_row", origin="backward", origin_layer="fc2"),
            "Streak of skips",
            "3 skips in a row, since step 498. It began in the backward pass at fc2.",
        ),
        (
            event("bad_streak", first_step=400, num_skips=3, reason="rate", origin="forward, not yet localised"),
            "Streak of skips",
            "3 skips within 200 steps, since step 400. The loss was not finite: it began in the forward pass, "
            "not yet localised.",
        ),
        (
            event("bad_streak_end", first_step=1000, last_step=1220, num_skips=88),
            "Streak over",
            "88 skips between steps 1,000 and 1,220; clean since.",
        ),
        (
            event("updates_lost", where=("a", "b", "c"), num_layers=9, shares=[0.5, 0.9321, 0.6]),
            "Updates lost",
            "Up to 93.2% of the updates of a, b and 7 more left the stored weight as it was: its format is too coarse "
            "for such steps.",
        ),
        (
            event("updates_lost", where=("a",), num_layers=1, shares=[1.0]),
            "Updates lost",
            "100% of the updates of a left the stored weight as it was: its format is too coarse for such steps.",
        ),
        (event("run_ended", outcome="finished"), "Finished", "After step 500."),
        (
            event("run_ended", outcome="exception", error_type="ValueError", message="no"),
            "Failed",
            "ValueError: no",
        ),
        (
            event("lost", reason="quota", counts={"points": 1200, "events": 0}),
            "Records lost",
            "1,200 points, 0 events could not be delivered: quota.",
        ),
        (
            event("lost", reason="quota", counts={"points": 1200, "bytes": 96, "first_step": 7, "last_step": 4000}),
            "Records lost",
            "1,200 points, 96 bytes of steps 7 to 4,000 could not be delivered: quota.",
        ),
        (
            event("lost", reason="damaged", counts={}, first_seq=1000, last_seq=1002),
            "Records lost",
            "Records 1,000 to 1,002 of the journal could not be delivered: damaged.",
        ),
        (
            event("resumed_without_state", where=("Adam",), of="optimizer"),
            "Resumed without state",
            "Adam: began without the state it had, as if it had never stepped; load its state.",
        ),
        (
            event("resumed_without_state", where=("GradScaler",), of="scaler", scale=65536.0, scale_before=1024.0),
            "Resumed without state",
            "GradScaler: goes on at scale 65,536, where it had left off at 1,024; load its state.",
        ),
        (event("brand_new.kind", where=("gpu",), heat=math.nan), "Brand new kind", "gpu: heat NaN"),
    ],
)
def test_events_are_worded(row: EventRow, title: str, text: str) -> None:
    """Title and sentence with the numbers; kinds nobody knows show what they bring."""
    item = describe(row)
    assert (item.title, item.text) == (title, text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["class", "scale", "scale_next", "nonfinite", "num_nonfinite", "num_finite", "value", "first_step", "counts"]


@given(st.sampled_from([*KINDS, "unknown"]), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_whatever_attributes_hold_there_is_a_sentence(kind: str, attributes: dict[str, Any]) -> None:
    """Attributes come from outside: any type in any place gives words that JSON can hold."""
    item = describe(event(kind, **attributes))
    assert item.title
    assert item.text
    page = EventPageModel.model_validate({"events": [asdict(item)], "kinds": [], "total": 1, "next_cursor": None})
    assert EventPageModel.model_validate_json(page.model_dump_json()) == page


def test_every_kind_has_a_role_of_the_theme() -> None:
    """Also the ones nobody wrote down."""
    roles = panels.theme()["light"]
    assert {kind_of(name).role for name in [*KINDS, "unknown"]} <= set(roles)


def write_events(writer: Any, count: int) -> None:
    """A run with `count` events: skips, and a streak among them."""
    writer.points("loss", range(1000), 1.0)
    for place in range(count - 2):
        writer.skip(place * 3, "single" if place % 2 else "probe")
    writer.event("bad_streak", 12, "warning", first_step=6)
    writer.event("bad_streak_end", 70, first_step=6, last_step=18)
    writer.commit()


@pytest.mark.parametrize("newest_first", [False, True])
def test_following_the_cursor_gives_every_event_once(lite: Store, write_run: WriteRun, newest_first: bool) -> None:
    """In order, page by page, with the total on each."""
    write_events(write_run(), 53)
    view, cursor = view_of(lite), None
    seen: list[EventItem] = []
    while True:
        page = events_page(view, cursor=cursor, limit=7, newest_first=newest_first)
        EventPageModel.model_validate(asdict(page))
        assert page.total == 53
        assert len(page.events) <= 7
        seen += page.events
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len({item.id for item in seen}) == 53
    steps = [item.step for item in seen]
    assert steps == sorted(steps, reverse=newest_first)


def test_a_filter_keeps_the_counts_of_all_kinds(lite: Store, write_run: WriteRun) -> None:
    """The filter bar shows what there is; the total is of what is shown."""
    write_events(write_run(), 53)
    page = events_page(view_of(lite), kinds=["bad_streak"])
    assert [item.kind for item in page.events] == ["bad_streak"]
    assert page.total == 1
    assert {kind.kind: kind.count for kind in page.kinds} == {"skip": 51, "bad_streak": 1, "bad_streak_end": 1}
    part = events_page(view_of(lite), first_step=6, last_step=18)
    assert (part.total, len(part.events)) == (6, 6)


def test_a_skip_inside_a_streak_is_listed_as_part_of_it(lite: Store, write_run: WriteRun) -> None:
    """Whatever its own event said."""
    write_events(write_run(), 53)
    items = {item.step: item for item in events_page(view_of(lite), kinds=["skip"]).events}
    assert (items[6].role, items[6].severity, items[6].details["class"]) == ("streak", "warning", "streak")
    assert (items[21].role, items[21].severity) == ("quiet", "info")


@pytest.mark.parametrize("cursor", ["", "1.2.3", "a.b.c.d", "1.2.x.s"])
def test_a_cursor_that_is_none_is_refused(lite: Store, write_run: WriteRun, cursor: str) -> None:
    """With what to pass instead."""
    write_events(write_run(), 5)
    with pytest.raises(BadCursor, match="next_cursor"):
        events_page(view_of(lite), cursor=cursor)


@pytest.mark.parametrize("bins", [1, 7, 200, 1000, 5000])
def test_counts_on_the_rug_add_up_to_the_number_of_events(lite: Store, write_run: WriteRun, bins: int) -> None:
    """At every width, with what lies before the first and after the last step."""
    writer = write_run()
    writer.points("loss", range(10, 1000), 1.0)
    writer.event("run_started", 0)
    for step in range(10, 900, 7):
        writer.skip(step, "probe")
        writer.event("scale_backoff", step)
    writer.event("nonfinite_applied", 500, "critical")
    writer.end("finished", 1200)
    writer.commit()
    view = view_of(lite)
    rug = event_rug(view, bins)
    assert rug is not None
    RugModel.model_validate(asdict(rug))
    assert rug.total == sum(view.event_counts.values())
    assert sum(mark.count for mark in rug.marks) == rug.total
    assert len(rug.marks) <= bins
    assert (rug.first_step, rug.last_step) == (10, 999)
    worst = [mark for mark in rug.marks if mark.first_step <= 500 <= mark.last_step]
    assert {(mark.role, mark.mark, mark.severity) for mark in worst} == {("nonfinite", "✕", "critical")}


def test_a_run_without_events_has_an_empty_rug(lite: Store, write_run: WriteRun) -> None:
    """A line without marks, not an error."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit()
    rug = event_rug(view_of(lite), 100)
    assert rug is not None
    assert (rug.total, rug.marks) == (0, [])


def test_a_part_of_the_rug_holds_the_events_of_that_part(lite: Store, write_run: WriteRun) -> None:
    """Read-outs name steps and counts, the gravest first."""
    writer = write_run()
    writer.points("loss", range(1000), 1.0)
    for step in (100, 200, 300):
        writer.skip(step, "probe")
        writer.event("scale_backoff", step)
    writer.commit()
    rug = event_rug(view_of(lite), 10, 150, 350)
    assert rug is not None
    assert [(mark.count, mark.text) for mark in rug.marks] == [
        (2, "step 200: 1 skip, 1 scale backoff"),
        (2, "step 300: 1 skip, 1 scale backoff"),
    ]


def test_a_caught_loss_is_no_critical_mark(lite: Store, write_run: WriteRun) -> None:
    """Withheld by the scaler or applied with finite gradients alone it is a warning; applied otherwise, critical."""
    writer = write_run()
    writer.points("loss", range(1000), 1.0)
    writer.skip(100, "single")
    writer.event("loss_nonfinite", 100, "warning", value="NaN", caught=True)
    writer.event("loss_nonfinite", 400, "warning", value="NaN", caught=True)
    writer.event("loss_nonfinite", 800, "critical", value="NaN", caught=False)
    writer.commit()
    rug = event_rug(view_of(lite), 100)
    assert rug is not None
    assert [mark.severity for mark in rug.marks] == ["warning", "warning", "critical"]
