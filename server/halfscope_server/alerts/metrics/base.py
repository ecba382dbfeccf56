"""What a derived metric is: how the records of a run become one number per step.

Must not know rules or thresholds. Invariant: a metric's numbers depend on the records up to their step, in the order
of the run, and on its own memory; not on how the records were cut into blocks.

Suffixes: N samples, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.types import Column, Samples
from halfscope_server.store.update_types import Wanted

if TYPE_CHECKING:
    from halfscope_server.alerts.block import Block

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Labels = tuple[tuple[str, str], ...]
"""Sorted; what tells apart the streams of samples of one metric."""
Memory = dict[str, Any]
"""What a metric keeps from one block to the next: plain values, bytes and arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSamples:
    """One number per sketched step and layer."""

    names: Sequence[str]
    """[L]"""
    step: Ints
    time_us: Ints
    value: Floats
    """[N, L]; NaN: unknown."""


Found = Mapping[Labels, Samples] | LayerSamples


def as_it_is(columns: Sequence[Column], divide_by: float = 1.0) -> Found:
    """The first of these columns, without its labels; nothing where there is none."""
    if not columns:
        return {}
    first = columns[0]
    return {(): Samples(step=first.step, time_us=first.time_us, value=first.value / divide_by)}


class Source(Protocol):
    """A metric at work on one run."""

    def feed(self, block: Block) -> Found:
        """Its numbers of the steps of a block."""
        ...

    def restart(self) -> None:
        """The training began anew."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One derived metric; a file of this folder holds some as `METRICS`."""

    id: str
    title: str
    """As it stands in a sentence: `NaN/Inf rate`."""
    text: str
    """One sentence: what the number is."""
    make: Callable[[Memory], Source]
    """Makes a source that keeps all it remembers in the given memory."""
    inputs: Wanted
    """What must be handed over for it."""
    unit: str = ""
    per_layer: bool = False
    aggregations: tuple[str, ...] | None = None
    """Ids of those that make sense; None: all (of layers: all that can be had of layers)."""
    counts: bool = False
    """Never negative: what is in a window only grows with it."""
    panel: str = ""
    """Id of the panel that shows it on a run's Overview."""
    kind: Literal["number", "flag", "scale"] = "number"
    """How its values read: `scale`: as powers of two."""
    ends_with_run: bool = False
    """It tells of the run's end itself: that this is resolved by the same end is no news for anybody."""
    aliases: tuple[str, ...] = field(default=())
