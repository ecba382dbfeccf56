"""The step clock."""

from __future__ import annotations

import pytest
from halfscope.record.clock import Phase, StepClock


@pytest.fixture
def closed() -> list[int]:
    return []


@pytest.fixture
def clock(closed: list[int]) -> StepClock:
    return StepClock(0, closed.append)


def test_a_completed_step_stays_open_until_the_next_work(clock: StepClock, closed: list[int]) -> None:
    """Completion closes nothing; the next backward does."""
    clock.begin()
    clock.complete()
    assert (clock.step, closed) == (0, [])
    clock.begin()
    assert (clock.step, clock.phase, closed) == (1, Phase.OPEN, [0])


def test_work_before_completion_belongs_to_the_same_step(clock: StepClock, closed: list[int]) -> None:
    """Micro-batches and other optimizers' steps do not advance it."""
    for _ in range(5):
        clock.begin()
    clock.complete()
    assert (clock.step, closed) == (0, [])


def test_completing_twice_in_a_row_is_two_steps(clock: StepClock, closed: list[int]) -> None:
    """A step whose beginning nobody saw is a step all the same."""
    clock.complete()
    clock.complete()
    assert (clock.step, closed) == (1, [0])


def test_a_completed_step_that_is_opened_again_is_completed_once_more(clock: StepClock, closed: list[int]) -> None:
    """More of its work was found to be to come; nothing is closed, and an open step stays as it is."""
    clock.reopen()
    assert clock.phase is Phase.FRESH
    clock.begin()
    clock.complete()
    clock.reopen()
    assert (clock.step, clock.phase, closed) == (0, Phase.OPEN, [])
    clock.reopen()
    clock.complete()
    clock.begin()
    assert (clock.step, closed) == (1, [0])


def test_annotations_after_completion_are_of_the_completed_step(clock: StepClock, closed: list[int]) -> None:
    """The documented place of `run.step` is after the update, once or more."""
    for step in range(3):
        clock.begin()
        clock.complete()
        clock.annotate()
        clock.annotate()
        assert clock.step == step


def test_annotations_before_backward_are_of_the_coming_step(clock: StepClock, closed: list[int]) -> None:
    """A loop that annotates before its first backward does so in every step, and no two steps share an annotation."""
    for step in range(3):
        clock.annotate()
        assert clock.step == step
        clock.begin()
        clock.complete()
    assert closed == [0, 1]


def test_annotations_between_backward_and_update_are_of_the_open_step(clock: StepClock, closed: list[int]) -> None:
    """The middle of a step is the simplest place."""
    for step in range(3):
        clock.begin()
        clock.annotate()
        assert clock.step == step
        clock.complete()


def test_the_end_closes_a_completed_step_only(closed: list[int]) -> None:
    """An attempt that an exception cut short is no attempt."""
    clock = StepClock(100, closed.append)
    clock.begin()
    clock.complete()
    clock.end()
    clock.end()
    assert closed == [100]
    clock.begin()
    clock.end()
    assert closed == [100]
