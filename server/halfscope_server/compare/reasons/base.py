"""What a mechanism is, and how weighty its findings are.

Must not import the store's tables. Invariant: weights differ by more than a share can add, so that of two mechanisms
the one that causes the other comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from halfscope_server.compare.types import LayerDivergence, Reason
from halfscope_server.query.format import plural

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

NONFINITE, SCALE, UPDATES, UNDERFLOW, SKIPS = 50.0, 40.0, 30.0, 20.0, 10.0
"""To which a share may be added: NaN in the weights outlives all else, and a collapsed scale makes gradients underflow
and comes with skips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """One way in which precision makes a training worse."""

    id: str
    find: Callable[[Comparison, int], list[Reason]]
    """Of a comparison and a member's place."""


def named(
    layers: Sequence[LayerDivergence], first_layer: str, lost: Callable[[LayerDivergence], float]
) -> tuple[LayerDivergence, int, str]:
    """Of layers that lost something the one to name: of those that did so first the one that parted first of all, else
    the one that lost most. With it the step at which it began, and how many others there are, in words.

    Args:
        layers: at least one; all have a first step.
        first_layer: the layer that parted first.
        lost: how much of it a layer lost.
    """
    first_step = min(layer.first_step for layer in layers if layer.first_step is not None)
    first = [layer for layer in layers if layer.first_step == first_step]
    worst = max(first, key=lambda layer: (layer.layer == first_layer, lost(layer)))
    others = f", as {plural(len(layers) - 1, 'other layer')} did" if len(layers) > 1 else ""
    return worst, first_step, others
