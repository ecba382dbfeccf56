"""The life of one alert, transition by transition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.machine import FEW, Judged, Levels, Machine
from halfscope_server.alerts.rule import Rule, Span

STEP_US = 10_000

CASES: dict[str, tuple[str, dict[str, Any], list[tuple[str, int]]]] = {
    # One digit a step, compared with `> 5` unless said otherwise.
    "never": ("0123455", {}, []),
    "at once": ("0690", {}, [("fired", 1), ("resolved", 3)]),
    "equal is not above": ("55", {}, []),
    "equal is at least": ("454", {"comparison": ">="}, [("fired", 1), ("resolved", 2)]),
    "below": ("646", {"comparison": "<"}, [("fired", 1), ("resolved", 2)]),
    "at most": ("656", {"comparison": "<="}, [("fired", 1), ("resolved", 2)]),
    "twice": ("6060", {}, [("fired", 0), ("resolved", 1), ("fired", 2), ("resolved", 3)]),
    "held for two steps": ("0666", {"hold": Span(steps=2)}, [("fired", 3)]),
    "not held": ("0660666", {"hold": Span(steps=2)}, [("dropped", 3), ("fired", 6)]),
    "pending at the end": ("066", {"hold": Span(steps=2)}, [("pending", 2)]),
    "held for seconds": ("0666", {"hold": Span(seconds=0.02)}, [("fired", 3)]),
    "hysteresis": ("6446463", {"clear": 3.5}, [("fired", 0), ("resolved", 6)]),
    "hysteresis with at least": ("5345", {"comparison": ">=", "clear": 3}, [("fired", 0)]),
    "kept on for two steps": ("60060000", {"keep_firing": Span(steps=2)}, [("fired", 0), ("resolved", 6)]),
    "kept on for seconds": ("6000", {"keep_firing": Span(seconds=0.02)}, [("fired", 0), ("resolved", 3)]),
    "all at once": (
        "0766464003",
        {"hold": Span(steps=1), "keep_firing": Span(steps=1), "clear": 3.5},
        [("fired", 2), ("resolved", 8)],
    ),
    "again after it was over": (
        "066006600",
        {"hold": Span(steps=1), "keep_firing": Span(steps=1)},
        [("fired", 2), ("resolved", 4), ("fired", 6), ("resolved", 8)],
    ),
}


def _run(digits: str, options: dict[str, Any], cut: int) -> list[tuple[str, int]]:
    rule = Rule(id="r", name="r", metric="loss", threshold=5, **options)
    machine, told = Machine(), []
    for first in range(0, len(digits), cut):
        values = np.array([float(digit) for digit in digits[first : first + cut]])
        steps = np.arange(first, first + values.size)
        judged = Judged(steps, steps * STEP_US, values)
        for change, at in machine.advance(judged, Levels.of(rule), rule.hold, rule.keep_firing, 0):
            told.append((change, first + at))
    return told


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("cut", [1000, 3, 1])
def test_a_sequence_gives_its_transitions(name: str, cut: int) -> None:
    """Fired and resolved at the steps of the table, however the sequence is cut."""
    digits, options, expected = CASES[name]
    told = _run(digits, options, cut)
    if cut == 1000:
        assert told == expected
    else:  # what is pending, and what came to nothing, is told as often as it is looked at
        lasting = ("fired", "resolved")
        assert [item for item in told if item[0] in lasting] == [item for item in expected if item[0] in lasting]


def test_a_long_block_gives_what_short_ones_give() -> None:
    """Crossings that do not last are passed over in one go where there are many; the transitions are the same."""
    rng = np.random.default_rng(4)
    digits = "".join(str(digit) for digit in rng.choice([4, 6, 7], 40 * FEW, p=[0.3, 0.4, 0.3]))
    options = {"hold": Span(steps=9), "keep_firing": Span(steps=2)}
    lasting = ("fired", "resolved")
    at_once = [item for item in _run(digits, options, len(digits)) if item[0] in lasting]
    assert len(at_once) > 20
    assert at_once == [item for item in _run(digits, options, FEW // 2) if item[0] in lasting]


def test_it_remembers_what_it_saw() -> None:
    """First, fired and newest steps, the value at the firing and the farthest of all."""
    rule = Rule(id="r", name="r", metric="loss", threshold=5, hold=Span(steps=2))
    machine = Machine()
    steps = np.arange(100, 106)
    judged = Judged(steps, steps * STEP_US, np.array([0.0, 6.0, 9.0, 7.0, 8.0, 6.5]))
    assert list(machine.advance(judged, Levels.of(rule), rule.hold, rule.keep_firing, 2)) == [("fired", 3)]
    assert (machine.attempt, machine.first_step, machine.fired_step, machine.last_step) == (2, 101, 103, 105)
    assert (machine.value, machine.worst, machine.fired_us) == (7.0, 9.0, 103 * STEP_US)


def test_a_training_that_goes_back_keeps_what_fires() -> None:
    """Steps that are done again belong to the alert that was firing when the training began anew."""
    rule = Rule(id="r", name="r", metric="loss", threshold=5)
    machine = Machine()
    for steps, values in (([10, 11], [6.0, 6.0]), ([5, 6, 7], [6.0, 6.0, 0.0])):
        judged = Judged(np.array(steps), np.array(steps) * STEP_US, np.array(values))
        told = list(machine.advance(judged, Levels.of(rule), rule.hold, rule.keep_firing, 0))
    assert told == [("resolved", 2)]
    assert (machine.first_step, machine.last_step, machine.resolved_step) == (10, 6, 7)
