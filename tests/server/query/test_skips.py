"""Tables of skipped steps, and streaks paired from their events."""

from __future__ import annotations

from typing import Any

import numpy as np
from halfscope_server.query import skips as sk
from halfscope_server.store.types import EventRow


def event(kind: str, step: int, stream: str = "a", attempt: int = 0, **attributes: Any) -> EventRow:
    """An event with what streaks look at."""
    return EventRow(
        run_id="r",
        stream=stream,
        seq=step,
        rank=0,
        attempt=attempt,
        kind=kind,
        step=step,
        time_us=0,
        severity="warning",
        where=[],
        attributes=attributes,
    )


def test_a_streak_lasts_from_its_first_skip_to_its_end_event() -> None:
    """The begin event comes at the third skip and names the first."""
    events = [event("bad_streak", 12, first_step=10), event("bad_streak_end", 99, first_step=10, last_step=40)]
    (streak,) = sk.find_streaks(events, {0: 500})
    assert (streak.first_step, streak.last_step, streak.is_open) == (10, 40, False)


def test_a_streak_without_an_end_lasts_to_the_newest_step() -> None:
    """Also when its event holds nothing but its kind."""
    (streak,) = sk.find_streaks([event("bad_streak", 12)], {0: 500})
    assert (streak.first_step, streak.last_step, streak.is_open) == (12, 500, True)


def test_ranks_that_saw_the_same_streak_tell_of_one() -> None:
    """Streaks that touch become one, which is open while any of them is."""
    events = [
        event("bad_streak", 12, "a", first_step=10),
        event("bad_streak", 13, "b", first_step=11),
        event("bad_streak_end", 60, "a", first_step=10, last_step=30),
    ]
    (streak,) = sk.find_streaks(events, {0: 80})
    assert (streak.first_step, streak.last_step, streak.is_open) == (10, 80, True)


def test_skips_inside_a_streak_are_shown_as_streak_whatever_their_event_said() -> None:
    """Its first two skips were told as single before anybody could know; another attempt's same step is not touched."""
    (streak,) = sk.find_streaks(
        [event("bad_streak", 12, first_step=10), event("bad_streak_end", 99, first_step=10, last_step=12)], {}
    )
    attempt, step = np.array([0, 0, 0, 0, 1]), np.array([9, 10, 11, 12, 11])
    told = np.array([sk.PROBE, sk.SINGLE, sk.SINGLE, sk.STREAK, sk.SINGLE])
    table = sk.classify(attempt, step, told, [streak])
    assert table.kind.tolist() == [sk.PROBE, sk.STREAK, sk.STREAK, sk.STREAK, sk.SINGLE]


def test_a_probe_inside_a_streak_stays_one_unless_it_stands_in_a_row_of_three() -> None:
    """A scale that is tried again meanwhile is no part of what is wrong."""
    streaks = sk.find_streaks([event("bad_streak", 40, first_step=10)], {0: 100})
    step = np.array([10, 20, 21, 40, 60, 61, 62, 120])
    told = np.full(8, sk.PROBE)
    told[[0, 2, 3, 5, 6]] = sk.SINGLE, sk.SINGLE, sk.STREAK, sk.SINGLE, sk.STREAK
    kinds = sk.classify(np.zeros(8, np.int64), step, told, streaks).kind.tolist()
    assert kinds == [sk.STREAK, sk.PROBE, *[sk.STREAK] * 5, sk.PROBE]


def test_a_step_skipped_by_two_optimizers_is_one_step_with_the_graver_class() -> None:
    """Rows come in any order."""
    table = sk.step_table(np.array([0, 0, 0]), np.array([7, 3, 7]), np.array([sk.PROBE, sk.SETTLING, sk.STREAK]))
    assert (table.step.tolist(), table.kind.tolist()) == ([3, 7], [sk.SETTLING, sk.STREAK])


def test_a_class_of_a_newer_agent_counts_as_single() -> None:
    """Nothing is dropped because its name is not known here."""
    table = sk.classify(np.array([0]), np.array([1]), np.array([-1]), [])
    assert table.kind.tolist() == [sk.SINGLE]


def test_the_longest_row_does_not_run_over_attempts() -> None:
    """Steps that follow one another only across a restart are two rows."""
    table = sk.step_table(np.array([0, 0, 1, 1, 1]), np.array([1, 2, 3, 4, 5]), np.zeros(5, np.int64))
    assert sk.longest_row(table) == 3
    assert sk.longest_row(sk.step_table(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))) == 0
