"""A thousand spikes of one step and a hundred bursts of NaN in a million steps: each is there, however far away one
looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.query.lines import Line, read_line
from halfscope_server.query.view import Views
from halfscope_server.query.window import Window
from halfscope_server.store.store import Store

NUM_STEPS = 1_000_000
NUM_SPIKES = 1_000
NUM_BURSTS = 100
NOISE = 1.0


class Planted:
    """The series, and where in it is what."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.value = rng.uniform(-NOISE, NOISE, NUM_STEPS)
        # Each in a thousand steps of its own, up and down by turns and each of a height of its own.
        self.spikes = np.arange(NUM_SPIKES) * (NUM_STEPS // NUM_SPIKES) + rng.integers(0, 900, NUM_SPIKES)
        self.value[self.spikes] = (50.0 + np.arange(NUM_SPIKES) / 100) * np.where(np.arange(NUM_SPIKES) % 2, 1, -1)
        self.bursts = np.arange(NUM_BURSTS) * (NUM_STEPS // NUM_BURSTS) + 950
        self.lengths = rng.integers(1, 20, NUM_BURSTS)
        for first, length in zip(self.bursts, self.lengths, strict=True):
            self.value[first : first + length] = np.nan


def assert_all_there(line: Line, planted: Planted, first: int, last: int) -> None:
    """Each spike of a window is drawn or reached by its stretch's band; each NaN is counted where it was."""
    for spike in planted.spikes[(planted.spikes >= first) & (planted.spikes <= last)].tolist():
        value = planted.value[spike]
        if line.band is None:
            assert value in line.curve.value[line.curve.step == spike], f"spike at {spike} of {first}..{last}"
            continue
        place = int(np.searchsorted(line.band.step, spike, side="right")) - 1
        edge = line.band.high[place] if value > 0 else line.band.low[place]
        assert line.band.step[place] <= spike < line.band.step[place] + line.bucket_steps
        assert abs(edge) >= abs(value), f"spike at {spike} of {first}..{last}"
    inside = (planted.bursts >= first) & (planted.bursts + planted.lengths - 1 <= last)
    for burst, length in zip(planted.bursts[inside].tolist(), planted.lengths[inside].tolist(), strict=True):
        near = (line.bad.last_step >= burst) & (line.bad.step < burst + length)
        assert line.bad.num_nan[near].sum() >= length, f"burst at {burst} of {first}..{last}"


@pytest.fixture
def planted(lite: Store, write_run: Callable[..., Any], sealed: Callable[[], None]) -> Planted:
    """Stored and sealed, all but what came last."""
    found = Planted()
    writer = write_run()
    step = np.arange(NUM_STEPS)
    writer.points("loss", step[:-5000], found.value[:-5000])
    sealed()
    writer.points("loss", step[-5000:], found.value[-5000:])
    writer.commit()
    return found


def test_every_spike_and_every_nan_is_there_at_every_zoom(lite: Store, planted: Planted) -> None:
    """Overview, halves, quarters ... down to single steps; of the narrow windows some around each kind of place."""
    view = Views(lite).get("run1")
    assert view is not None
    (series,) = view.named("loss")
    chance = np.random.default_rng(5)
    width = NUM_STEPS
    while width > 4:
        firsts = np.arange(0, NUM_STEPS, width)
        if firsts.size > 8:
            places = np.concatenate([chance.choice(planted.spikes, 3), chance.choice(planted.bursts, 2)])
            firsts = np.maximum(0, places - width // 2)
        for first in firsts.tolist():
            line = read_line(view, series, Window(first=first, last=first + width - 1))
            assert line is not None
            assert_all_there(line, planted, first, first + width - 1)
        width //= 2
    overview = read_line(view, series, Window())
    assert overview is not None
    assert_all_there(overview, planted, 0, NUM_STEPS - 1)
    assert overview.bad.num_nan.sum() == planted.lengths.sum()
