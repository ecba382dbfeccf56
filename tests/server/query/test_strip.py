"""The strip's cells against loops over every step."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from halfscope_server.query import strip as st_
from halfscope_server.query.skips import SKIP_CLASSES, STREAK, StepTable, step_table
from halfscope_server.query.strip import AMBER, APPLIED, CLEAN, CRIMSON, LOSS_CAUGHT, NO_DATA, QUIET, Strip
from halfscope_server.query.window import Span
from hypothesis import given
from hypothesis import strategies as st


def table(rows: dict[int, int]) -> StepTable:
    """A table of one attempt: step to class."""
    steps = np.array(sorted(rows), np.int64)
    kinds = np.array([rows[s] for s in sorted(rows)], np.int64)
    return step_table(np.zeros(steps.size, np.int64), steps, kinds)


def strip(
    first: int,
    last: int,
    bins: int,
    skips: dict[int, int],
    bad: dict[int, int],
    recorded: list[tuple[int, int]] | None = None,
) -> Strip:
    """A strip of plain data."""
    return st_.build_strip(
        Span(first_step=first, last_step=last),
        bins,
        skips=table(skips),
        bad=table(bad),
        recorded=[(first, last)] if recorded is None else recorded,
        clock=[],
        summary="",
    )


def cells(made: Strip) -> np.ndarray:
    """Class per bin."""
    return np.frombuffer(base64.b64decode(made.cells), np.uint8)


def heights(made: Strip) -> np.ndarray:
    """Height per bin."""
    return np.frombuffer(base64.b64decode(made.heights), np.uint8)


STEPS = st.dictionaries(st.integers(0, 500), st.integers(0, 3), max_size=30)
BAD = st.dictionaries(st.integers(0, 500), st.integers(0, 2), max_size=10)


@given(st.integers(0, 100), st.integers(0, 500), st.integers(10, 300), STEPS, BAD)
def test_cells_equal_a_loop_over_steps(
    first: int, length: int, bins: int, skips: dict[int, int], bad: dict[int, int]
) -> None:
    """The gravest step of a bin decides it, whether a bin is many steps or a step many bins."""
    num = length + 1
    made = strip(first, first + length, bins, skips, bad)

    def gravity(step: int) -> int:
        if step in bad:
            return CRIMSON
        if step in skips:
            return AMBER if skips[step] == STREAK else QUIET
        return CLEAN

    for k, painted in enumerate(cells(made).tolist()):
        low, high = k * num / bins, (k + 1) * num / bins
        inside = [s for s in range(num) if (low <= s < high if num >= bins else s <= low < s + 1)]
        assert painted == max(gravity(first + s) for s in inside), (k, inside)


@given(st.integers(20, 500), st.integers(10, 20), STEPS)
def test_skips_of_the_read_outs_add_up(length: int, bins: int, skips: dict[int, int]) -> None:
    """Every skip of the range is counted in exactly one cell's read-out."""
    made = strip(0, length, bins, skips, {})
    told = sum(int(text.split(": ")[1].split()[0].replace(",", "")) for text in made.texts.values())
    assert told == sum(1 for step in skips if step <= length)


def test_one_poisoned_step_among_a_million_keeps_its_cell() -> None:
    """Full height, at least two pixels, above every other class: also beside ten thousand skips."""
    skips = dict.fromkeys(range(0, 1000000, 100), STREAK)
    made = strip(0, 999_999, 320, skips, {500_123: APPLIED})
    place = 500_123 * 320 // 1_000_000
    assert np.flatnonzero(cells(made) == CRIMSON).tolist() == [place]
    assert heights(made)[place] == 255
    crimson = next(c for c in made.classes if c.id == CRIMSON)
    assert crimson.min_px == 2
    assert crimson.rank == max(c.rank for c in made.classes)
    assert crimson.role == "nonfinite"


@pytest.mark.parametrize(("num_steps", "growth_interval"), [(1_000_000, 2000), (20_000, 100)])
def test_settling_and_a_probe_per_growth_interval_look_calm(num_steps: int, growth_interval: int) -> None:
    """Nothing but base line and small ticks, no amber, no range to list; also where every cell has a probe."""
    skips = dict.fromkeys(range(5), SKIP_CLASSES.index("settling"))
    skips |= dict.fromkeys(range(growth_interval, num_steps, growth_interval), SKIP_CLASSES.index("probe"))
    made = strip(0, num_steps - 1, 800, skips, {})
    assert set(cells(made).tolist()) <= {CLEAN, QUIET}
    assert heights(made).max() < 110
    assert made.ranges == []


def test_amber_grows_with_the_share_of_skips() -> None:
    """One skip in a hundred is lower than every second, and neither reaches full height."""
    sparse = strip(0, 9999, 10, dict.fromkeys(range(0, 1000, 100), STREAK), {})
    dense = strip(0, 9999, 10, dict.fromkeys(range(0, 1000, 2), STREAK), {})
    assert 90 < heights(sparse)[0] < heights(dense)[0] < 255


def test_what_was_not_recorded_is_neither_clean_nor_silent() -> None:
    """A hole has a class of its own and a read-out."""
    made = strip(0, 999, 10, {}, {}, recorded=[(0, 299), (500, 999)])
    assert cells(made).tolist() == [CLEAN] * 3 + [NO_DATA] * 2 + [CLEAN] * 5
    assert made.texts == {3: "steps 300-399: not recorded", 4: "steps 400-499: not recorded"}


def test_read_outs_say_steps_counts_and_classes() -> None:
    """As the pages' example: one skip by its class, several by their number."""
    probe, streak = SKIP_CLASSES.index("probe"), STREAK
    made = strip(
        0, 999, 10, {5: probe, 110: probe, 120: probe, 210: streak, 211: probe}, {300: LOSS_CAUGHT, 301: APPLIED}
    )
    assert made.texts[0] == "steps 0-99: 1 skip (probe)"
    assert made.texts[1] == "steps 100-199: 2 skips, all probes"
    assert made.texts[2] == "steps 200-299: 2 skips (1 probe, 1 in a streak)"
    assert made.texts[3] == "steps 300-399: NaN or Inf applied in 1 step, loss NaN or Inf in 1 step, caught"


def test_bad_ranges_run_from_the_first_to_the_last_bad_step() -> None:
    """Neighbouring bad cells are one range, with the exact steps and the gravest severity."""
    skips = dict.fromkeys(range(130, 260), STREAK)
    made = strip(0, 999, 10, skips, {250: APPLIED, 777: APPLIED})
    assert [(r.first_step, r.last_step, r.severity) for r in made.ranges] == [
        (130, 259, "critical"),
        (777, 777, "critical"),
    ]
    assert made.ranges[0].text == "steps 130-259: NaN or Inf applied in 1 step, 130 skips in a streak"
