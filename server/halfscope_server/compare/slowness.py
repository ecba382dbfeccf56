"""Why a run is slower than the baseline, or hardly faster, in sentences; as far as what was recorded tells.

Each cause is one function of a member, its baseline and their paces. Must not import the store's tables. Invariant: a
sentence holds the number that it rests on, and says "may" where that number only makes it likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from halfscope_server.compare.fairness.base import fact
from halfscope_server.compare.pace import Pace
from halfscope_server.compare.types import Estimate
from halfscope_server.query.format import duration, integer, plural, share, short
from halfscope_server.query.states import precision_of
from halfscope_server.query.view import RunView
from halfscope_server.store.types import LayerRow

HARDLY = 1.1
"""With an interval that reaches below this a speedup is none worth the name."""
SKIPPED_SHARE = 0.01
"""Of steps: fewer are what a healthy scaler makes."""
WATCHED_SHARE = 0.02
"""Of step time; four times what watching may cost by default."""
BETWEEN_SHARE = 0.25
"""Of step time before a step's first pass: with so much of it twice the arithmetic speed is worth 1.6 at most."""
TENSOR_CORE_MULTIPLE = 8
"""Sizes of FP16 and BF16 matrices that are no multiples of this leave tensor cores without work, or with padding."""
SMALL_ON_CPU, SMALL_ON_DEVICE = 1 << 20, 1 << 27
"""Multiplications of a layer in a step below which starting it and casting its inputs outweigh them: some 0.05 ms."""
NO_HALF_ARITHMETIC = ("DEFAULT", "NO AVX", "AVX2")
"""What torch calls processors that convert FP16 and BF16 but cannot multiply them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A member that is to be explained."""

    view: RunView
    baseline: RunView
    pace: Pace
    speedup: Estimate


def causes(slow: Slow) -> list[str]:
    """All that apply; none where the run is clearly faster."""
    lowest = slow.speedup.value if slow.speedup.low is None else slow.speedup.low
    found = list(_skips(slow)) + list(_watching(slow))
    if lowest < HARDLY:
        for cause in (_processor, _small, _tensor_cores, _between_steps):
            found += cause(slow)
    return found


def is_half(view: RunView) -> bool:
    """Whether a run computes in 16 bits."""
    return precision_of(view.row).startswith(("FP16", "BF16"))


def _processor(slow: Slow) -> Iterator[str]:
    if _device(slow.view) != "cpu" or not is_half(slow.view):
        return
    kind = "FP16" if precision_of(slow.view.row).startswith("FP16") else "BF16"
    capability = str(fact(slow.view, "device", "capability") or "")
    if capability.upper() in NO_HALF_ARITHMETIC:
        yield (
            f"its processor ({capability}) has no {kind} arithmetic: every operation converts to FP32 and back"
            f"; {kind} saves no time there"
        )
    else:
        yield f"it ran on a CPU; without instructions for {kind} arithmetic every operation converts to FP32 and back"


def _small(slow: Slow) -> Iterator[str]:
    matrices, batch = _matrices(slow.view), _rows(slow.pace)
    if not matrices or batch is None:
        return
    work = [batch * float(np.prod(row.shape)) for row in matrices]
    on_cpu = _device(slow.view) == "cpu"
    small = sum(each < (SMALL_ON_CPU if on_cpu else SMALL_ON_DEVICE) for each in work)
    if small > len(work) / 2 and slow.pace.step_s.size:
        step_s = duration(float(np.median(slow.pace.step_s)))
        starting = "casting to 16 bits and starting operations" if is_half(slow.view) else "starting operations"
        yield (
            f"its layers are small: {integer(small)} of {plural(len(work), 'matrix', 'matrices')} multiply fewer than"
            f" {short(max(1.0, max(work)))} pairs of numbers a step of {step_s}, so {starting} may take longer than the"
            " arithmetic"
        )


def _tensor_cores(slow: Slow) -> Iterator[str]:
    if _device(slow.view) != "cuda" or not is_half(slow.view):
        return
    matrices = _matrices(slow.view, with_convolutions=True)
    odd = [row for row in matrices if any(size % TENSOR_CORE_MULTIPLE for size in row.shape[:2])]
    total = sum(float(np.prod(row.shape)) for row in matrices)
    if not odd:
        return
    held = sum(float(np.prod(row.shape)) for row in odd) / total
    if held < 0.1:
        return
    largest = max(odd, key=lambda row: float(np.prod(row.shape)))
    yield (
        f"{share(held)} of its weights are in layers whose sizes are no multiples of {TENSOR_CORE_MULTIPLE}, which"
        f" tensor cores want: {largest.name} is {' x '.join(map(str, largest.shape))}"
    )


def _between_steps(slow: Slow) -> Iterator[str]:
    """Recorded on CPUs alone: on a device the host's waiting says nothing of the device's."""
    between, step_s = slow.view.recent("time.between_s"), slow.view.recent("time.step_s")
    if not between.size or not step_s.size:
        return
    idle, whole = float(np.median(between)), float(np.median(step_s))
    if idle > BETWEEN_SHARE * whole > 0:
        yield (
            f"{share(idle / whole)} of its step time ({duration(idle)} of {duration(whole)}) lies between the end of a"
            " step and the next forward pass: waiting for data, or what else the loop does there; no number format"
            " makes it shorter"
        )


def _skips(slow: Slow) -> Iterator[str]:
    steps, skipped = slow.view.num_attempted_steps, slow.view.skips.size
    if steps and skipped / steps > SKIPPED_SHARE:
        yield f"{share(skipped / steps)} of its steps were skipped: they took time and changed nothing"


def _watching(slow: Slow) -> Iterator[str]:
    costs = slow.view.recent("halfscope.cost_share")
    if costs.size and float(np.median(costs)) > WATCHED_SHARE:
        yield f"watching took {share(float(np.median(costs)))} of its step time"


def _matrices(view: RunView, *, with_convolutions: bool = False) -> list[LayerRow]:
    """Weights that are multiplied with a batch; where all are plain matrices, unless told otherwise."""
    weights = [row for row in view.layers.values() if len(row.shape) >= 2]
    if not with_convolutions and any(len(row.shape) > 2 for row in weights):
        return []  # A convolution multiplies its weights once per place of an image whose size is not known.
    return weights


def _rows(pace: Pace) -> float | None:
    """Rows that a layer multiplies in a step: tokens where they are known, else samples."""
    for unit in ("tokens/s", "samples/s"):
        if unit in pace.rates and pace.step_s.size:
            return float(np.median(pace.rates[unit]) * np.median(pace.step_s))
    return None


def _device(view: RunView) -> str:
    return str(fact(view, "device", "type") or "")
