"""Views: extent, clock, pieces and the memory of what was computed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from halfscope_server.query import RunView, Span, Views, Window
from halfscope_server.store.store import Store

WriteRun = Callable[..., Any]
BEGAN_US, STEP_US = 1_700_000_000_000_000, 10_000


def newest(views: Views, run_id: str = "run1") -> RunView:
    """The view of a run that is there."""
    view = views.get(run_id)
    assert view is not None
    return view


def test_a_view_is_kept_while_nothing_comes_and_replaced_when_something_does(lite: Store, write_run: WriteRun) -> None:
    """Same data, same object, computed once; one more point and it is another."""
    views, calls = Views(lite), []
    writer = write_run()
    writer.points("loss", range(5), 1.0)
    writer.commit()
    first = newest(views)
    assert newest(views) is first
    for _ in range(2):
        first.memo("counted", lambda: calls.append(1))
    assert len(calls) == 1
    assert first.span == Span(first_step=0, last_step=4)
    writer.points("loss", [5], 1.0)
    writer.commit()
    second = newest(views)
    assert second is not first
    assert (first.span, second.span) == (Span(first_step=0, last_step=4), Span(first_step=0, last_step=5))


def test_a_renamed_run_keeps_what_was_computed_from_its_data(lite: Store, write_run: WriteRun) -> None:
    """Only the row is new."""
    views = Views(lite)
    writer = write_run()
    writer.points("loss", range(5), 1.0)
    writer.commit()
    newest(views).memo("kept", lambda: 1)
    lite.rename_run("run1", "better name")
    view = newest(views)
    assert view.row.name == "better name"
    assert view.memo("kept", lambda: 2) == 1


def test_threads_that_ask_together_share_one_computation(lite: Store, write_run: WriteRun) -> None:
    """The second waits for the first instead of computing the same."""
    writer = write_run()
    writer.points("loss", range(5), 1.0)
    writer.commit()
    view, calls, started = newest(Views(lite)), [], threading.Barrier(4)

    def compute() -> int:
        calls.append(1)
        return 7

    def ask() -> None:
        started.wait(timeout=10)
        assert view.memo("shared", compute) == 7

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_deleted_run_has_no_view(lite: Store, write_run: WriteRun) -> None:
    """Nor has one that never was."""
    views = Views(lite)
    writer = write_run()
    writer.points("loss", range(5), 1.0)
    writer.commit()
    assert newest(views)
    lite.delete_run("run1", now_us=1)
    assert views.get("run1") is None
    assert views.get("never") is None


def test_the_extent_is_exact_and_spans_attempts(lite: Store, write_run: WriteRun) -> None:
    """First and last step to the step, also off the grid of 64, and attempted steps count what was done again."""
    for attempt, (low, high) in enumerate(((1003, 2100), (1500, 2500))):
        writer = write_run(attempt=attempt)
        writer.points("loss", range(low, high), 1.0)
        writer.commit()
    view = newest(Views(lite))
    assert [(a.number, a.span.first_step, a.span.last_step) for a in view.attempts] == [
        (0, 1003, 2099),
        (1, 1500, 2499),
    ]
    assert view.span == Span(first_step=1003, last_step=2499)
    assert view.num_attempted_steps == 1097 + 1000


def test_pieces_cover_every_step_once_and_ghosts_the_rest(lite: Store, write_run: WriteRun) -> None:
    """Three attempts, the second of which went back furthest."""
    for attempt, (low, high) in enumerate(((0, 100), (20, 60), (50, 120))):
        writer = write_run(attempt=attempt)
        writer.points("loss", range(low, high), 1.0)
        writer.commit()
    pieces = newest(Views(lite)).pieces(Span(first_step=10, last_step=110))
    shown = sorted(s for p in pieces if not p.is_ghost for s in range(p.span.first_step, p.span.last_step + 1))
    assert shown == list(range(10, 111))
    ghosts = {(p.attempt, p.span.first_step, p.span.last_step) for p in pieces if p.is_ghost}
    assert ghosts == {(0, 20, 99), (1, 50, 59)}


def test_the_clock_tells_when_steps_were(lite: Store, write_run: WriteRun) -> None:
    """Ascending, from the first step to the newest."""
    writer = write_run()
    writer.points("loss", range(1000), 1.0)
    writer.commit()
    step, time_us = newest(Views(lite)).clock
    assert (step[0], step[-1]) == (0, 999)
    assert time_us.tolist() == [BEGAN_US + s * STEP_US for s in step.tolist()]


def test_a_window_resolves_to_steps_the_run_has(lite: Store, write_run: WriteRun) -> None:
    """Ends outside are cut, reversed ends are put right, a window beside the run is its nearest step."""
    writer = write_run()
    writer.points("loss", range(100, 200), 1.0)
    writer.commit()
    view = newest(Views(lite))
    cases = {
        (None, None): (100, 199),
        (120, 130): (120, 130),
        (0, 10**9): (100, 199),
        (150, 140): (140, 150),
        (500, 600): (199, 199),
        (0, 50): (100, 100),
    }
    for (first, last), expected in cases.items():
        span = view.resolve(Window(first=first, last=last))
        assert span is not None
        assert (span.first_step, span.last_step) == expected


def test_a_run_without_a_step_has_no_extent(lite: Store, write_run: WriteRun) -> None:
    """It was attached and waits."""
    writer = write_run()
    writer.facts(precision="FP32")
    writer.commit()
    view = newest(Views(lite))
    assert (view.span, view.attempts, view.num_attempted_steps) == (None, (), 0)
    assert view.resolve(Window()) is None
