"""Why a member is likely worse than the baseline: mechanisms, each with its evidence.

A module of this folder with a `REASON` is one; add a file and it appears, tested by the contract tests. Must not import
plotly. Invariant: what the baseline does as much as the member is no reason for a difference between them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from halfscope_server.compare.reasons.base import Mechanism
from halfscope_server.compare.types import Reason
from halfscope_server.scanning import found_in

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison


@cache
def mechanisms() -> tuple[Mechanism, ...]:
    """Every one, by id.

    Raises:
        ValueError: two files hold one id.
    """
    found: dict[str, Mechanism] = found_in(__name__, __path__, "REASON")
    return tuple(found[key] for key in sorted(found))


def find(comparison: Comparison, index: int) -> list[Reason]:
    """What speaks for a member being worse, the weightiest first.

    Args:
        index: the member's place, 1 or more.
    """

    def look() -> list[Reason]:
        found = [reason for mechanism in mechanisms() for reason in mechanism.find(comparison, index)]
        return sorted(found, key=lambda reason: -reason.score)

    return comparison.memo(("reasons", index), look)
