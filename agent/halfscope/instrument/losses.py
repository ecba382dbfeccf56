"""Which layers lose most of their updates, as sketch after sketch of them says so.

Must not import torch. Invariant: a layer is told once, when it has lost most updates in several sketched steps in a
row, and again only after it has recovered; layers stored in full precision are none of it: there a step is lost only
because it is next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from halfscope.sketch import Sketch

LOST_SHARE = 0.5
RECOVERED_SHARE = 0.25
"""Of a layer around the limit it would be told again and again."""
NUM_IN_A_ROW = 3


class Losses:
    """Of one run."""

    def __init__(self, is_narrow: Callable[[int], bool]) -> None:
        """
        Args:
            is_narrow: whether a layer's weights are stored in half precision or less.
        """
        self._is_narrow = is_narrow
        self._in_a_row: dict[int, int] = {}
        self._told: set[int] = set()

    def see(self, lids: Sequence[int], updates: Sketch) -> list[tuple[int, float]]:
        """Layers that are to be told now, and the share that they have just lost.

        Args:
            updates: of the changes of each of these layers in one step.
        """
        found: list[tuple[int, float]] = []
        for lid, num_lost, count in zip(lids, updates.zeros.tolist(), updates.n.tolist(), strict=True):
            if not count or not self._is_narrow(lid):
                continue
            share = num_lost / count
            if share < LOST_SHARE:
                self._in_a_row.pop(lid, None)
                if share < RECOVERED_SHARE:
                    self._told.discard(lid)
                continue
            times = self._in_a_row[lid] = self._in_a_row.get(lid, 0) + 1
            if times >= NUM_IN_A_ROW and lid not in self._told:
                self._told.add(lid)
                found.append((lid, share))
        return found
