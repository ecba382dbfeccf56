"""What the instruments need of a recorder. Must not import torch.

Invariant: nothing behind these methods waits for a disk or a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from halfscope.wire.messages import Layer, Slices

if TYPE_CHECKING:
    from halfscope.sketch import Sketch


class Declares(Protocol):
    """Gives out series numbers."""

    def declare(
        self,
        name: str,
        *,
        unit: str = "",
        kind: str = "gauge",
        reduction: str = "last",
        labels: Mapping[str, str] | None = None,
    ) -> int: ...


class Tells(Protocol):
    """Takes events and facts."""

    def event(
        self,
        kind: str,
        step: int,
        *,
        severity: str = "info",
        where: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        time_us: int | None = None,
        urgent: bool = False,
    ) -> None: ...

    def facts(self, facts: Mapping[str, Any]) -> None: ...


class Records(Declares, Tells, Protocol):
    """Takes everything of a run."""

    def row(self, step: int, time_us: int, values: Sequence[tuple[int, float]]) -> None: ...

    def block(
        self, steps: Sequence[int], times_us: Sequence[int], sids: tuple[int, ...], columns: Sequence[Sequence[float]]
    ) -> None: ...

    def layers(self, layers: Sequence[Layer]) -> None: ...

    def sketches(
        self,
        step: int,
        time_us: int,
        *,
        point: str,
        clipped: str,
        scale: float,
        lids: Sequence[int],
        sketches: Sketch,
        of: str = "grad",
    ) -> None: ...

    def slices(self, slices: Slices) -> None: ...
