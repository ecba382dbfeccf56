"""What a mechanism is, and how weighty its findings are.

Must not import the store's tables. Invariant: weights differ by more than a share can add, so that of two mechanisms
the one that causes the other comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from halfscope_server.compare.types import Reason

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
