"""What is left to see of a thousand spikes of one step and a hundred bursts of NaN in a million steps: on halfscope's
charts, and of what TensorBoard keeps of the same series for its page.

A spike is seen where its step is drawn, or where the band of its stretch reaches it; a burst where NaN is counted at
its steps. Looked at are the whole run, and windows half as wide each time, evenly over the run. TensorBoard's page
zooms into what was kept for the whole.
Invariant: both are given the very same values, and every planted place is counted in each window that holds it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from halfscope_server.query.lines import read_line
from halfscope_server.query.view import Views
from halfscope_server.query.window import Window
from halfscope_server.store.store import Store
from numpy.typing import NDArray

from tests.bench.reading import store_series
from tests.bench.report import Measurement, say
from tests.server.query.test_spikes import Planted

NARROWEST = 1_000
MAX_WINDOWS = 8
"""Of each width."""
WHOLE = "overview"
Ask = Callable[[Path], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Of some windows together."""

    spikes: int = 0
    bursts: int = 0

    def __add__(self, other: Seen) -> Seen:
        return Seen(spikes=self.spikes + other.spikes, bursts=self.bursts + other.bursts)


def measure(ask: Ask, quick: bool) -> Iterator[Measurement]:
    """Both, of one series."""
    planted = Planted()
    if quick:
        _shorten(planted, 50_000)
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        say("spikes: TensorBoard writes and reads a million steps, about a minute")
        np.save(Path(folder) / "values.npy", planted.value)
        theirs = ask(Path(folder))
    kept = np.asarray(theirs["kept"], np.int64)
    say("spikes: halfscope stores and draws them")
    windows = {WHOLE: [(0, planted.value.size - 1)], "zooms": zooms(planted.value.size)}
    with _chart(planted.value) as ours:
        for name, chosen in windows.items():
            all_of = _sum(planted_in(planted, *window) for window in chosen)
            yield _line(f"{name}.planted", all_of.spikes, "spikes")
            yield _line(f"{name}.bursts_planted", all_of.bursts, "bursts")
            for tool, seen in (
                ("halfscope", _sum(seen_in(ours(*window), planted, *window) for window in chosen)),
                ("tensorboard", _sum(kept_in(kept, planted, *window) for window in chosen)),
            ):
                yield _line(f"{tool}.{name}.seen", seen.spikes, "spikes")
                yield _line(f"{tool}.{name}.bursts_seen", seen.bursts, "bursts")
    yield _line("tensorboard.kept", kept.size, "points")
    yield _line("tensorboard.write_s", theirs["write_s"], "s")
    yield _line("tensorboard.read_s", theirs["read_s"], "s")


def _line(name: str, value: float, unit: str) -> Measurement:
    return Measurement(name=f"peers.spikes.{name}", value=float(value), unit=unit)


def table(lines: Sequence[Measurement]) -> list[str]:
    """As comments."""
    values = {line.name.removeprefix("peers.spikes."): int(line.value) for line in lines}
    return [
        "# spikes of one step and bursts of NaN in a long series",
        *(
            f"#   {tool:12} {name:9} {values[f'{tool}.{name}.seen']:>6} of {values[f'{name}.planted']} spikes, "
            f"{values[f'{tool}.{name}.bursts_seen']:>5} of {values[f'{name}.bursts_planted']} bursts"
            for tool in ("halfscope", "tensorboard")
            for name in (WHOLE, "zooms")
        ),
    ]


def _shorten(planted: Planted, num_steps: int) -> None:
    planted.value = planted.value[:num_steps]
    planted.spikes = planted.spikes[planted.spikes < num_steps]
    whole = planted.bursts + planted.lengths <= num_steps
    planted.bursts, planted.lengths = planted.bursts[whole], planted.lengths[whole]


def zooms(num_steps: int) -> list[tuple[int, int]]:
    """Windows from half of the run down, at places that do not depend on what is there."""
    found, width = [], num_steps // 2
    while width >= NARROWEST:
        firsts = np.arange(0, num_steps - width + 1, width)
        chosen = firsts[np.linspace(0, firsts.size - 1, min(MAX_WINDOWS, firsts.size)).astype(int)]
        found += [(int(first), int(first) + width - 1) for first in chosen]
        width //= 2
    return found


def planted_in(planted: Planted, first: int, last: int) -> Seen:
    """All that lies in a window."""
    return Seen(spikes=int(_inside(planted, first, last).sum()), bursts=len(_bursts(planted, first, last)))


def kept_in(kept: NDArray[np.int64], planted: Planted, first: int, last: int) -> Seen:
    """What of that is among the points that were kept."""
    spikes = planted.spikes[_inside(planted, first, last)]
    bursts = sum(bool(((kept >= at) & (kept < at + length)).any()) for at, length in _bursts(planted, first, last))
    return Seen(spikes=int(np.isin(spikes, kept).sum()), bursts=bursts)


def seen_in(line: Any, planted: Planted, first: int, last: int) -> Seen:
    """What of that is on a chart of halfscope's."""
    spikes = 0
    for spike in planted.spikes[_inside(planted, first, last)].tolist():
        value = planted.value[spike]
        if line.band is None:
            spikes += bool((line.curve.value[line.curve.step == spike] == value).any())
            continue
        place = int(np.searchsorted(line.band.step, spike, side="right")) - 1
        edge = line.band.high[place] if value > 0 else line.band.low[place]
        spikes += bool(spike < line.band.step[place] + line.bucket_steps and abs(edge) >= abs(value))
    bursts = 0
    for at, length in _bursts(planted, first, last):
        near = (line.bad.last_step >= at) & (line.bad.step < at + length)
        bursts += bool(line.bad.num_nan[near].sum() >= length)
    return Seen(spikes=spikes, bursts=bursts)


def _inside(planted: Planted, first: int, last: int) -> NDArray[np.bool_]:
    return np.asarray((planted.spikes >= first) & (planted.spikes <= last))


def _bursts(planted: Planted, first: int, last: int) -> list[tuple[int, int]]:
    ends = planted.bursts + planted.lengths - 1
    chosen = (planted.bursts >= first) & (ends <= last)
    return list(zip(planted.bursts[chosen].tolist(), planted.lengths[chosen].tolist(), strict=True))


def _sum(parts: Iterator[Seen]) -> Seen:
    return sum(parts, Seen())


@contextmanager
def _chart(values: NDArray[np.float64]) -> Iterator[Callable[[int, int], Any]]:
    """The series in a store of its own: its line in any window."""
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'halfscope.db'}")
        try:
            view = Views(store).get(store_series(store, values))
            assert view is not None, "it was stored a moment ago"
            (series,) = view.named("loss")
            yield lambda first, last: read_line(view, series, Window(first=first, last=last))
        finally:
            store.close()
