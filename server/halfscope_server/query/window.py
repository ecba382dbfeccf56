"""Which part of a run is looked at and how, and what that means in steps.

Owns `Window` (a request) and `Span` (its answer in steps and time). Must not import the store.
Invariant: a span is never empty and never reaches outside what it was resolved against, so that no caller divides by
zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_POINTS = 1000
"""Most points of one drawn trace: SVG lines of 10 x 2,000 points cost a browser 40-60 ms a redraw."""
MARK_PX = 4
"""Events and marks closer than this share one mark with a count."""


Statistic = Literal["underflow", "headroom", "nonfinite", "norm", "zeros"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a run and how it is drawn; hashable, because viewers who ask for the same share one computation."""

    x: Literal["step", "time"] = "step"
    first: float | None = None
    last: float | None = None
    """In steps, or in microseconds since the epoch when `x` is `time`. None: the whole run, following its end."""
    y: Literal["linear", "log", "auto"] = "auto"
    smooth: float = 0.0
    """Weight of the exponential moving average, 0..1; 0: off."""
    width_px: int = 800
    utc_offset_min: int = 0
    """Minutes to add to UTC for the viewer's local time on the time axis."""
    layer: str = ""
    """Name of a parameter or module; empty: the layer with the worst underflow."""
    stat: Statistic = "underflow"
    """What the layers' heatmap shows."""
    step: int | None = None
    """The step whose histogram is shown: the measured one nearest to it. None: the newest."""
    gradient: Literal["auto", "seen", "true"] = "auto"
    """As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16."""
    rows: tuple[str, ...] = ()
    """Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened."""
    rank: int | None = None
    """Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together."""

    @property
    def follows(self) -> bool:
        """Whether it shows the newest steps as they come."""
        return self.last is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of steps, both ends included."""

    first_step: int
    last_step: int

    def __post_init__(self) -> None:
        assert self.last_step >= self.first_step, "a span holds at least one step"

    @property
    def num_steps(self) -> int:
        return self.last_step - self.first_step + 1


def grown(last: int, first: int = 0) -> int:
    """The end of a live axis: the first of 1.25^k steps after `first` that is not before `last`.

    A picture whose axis moved with every tick could not be read; so an axis grows in steps of 25%.
    """
    length = 100.0
    while length < last - first:
        length *= 1.25
    return first + int(length)
