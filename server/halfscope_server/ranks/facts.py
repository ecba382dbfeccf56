"""What ranks must agree in: which series, how its values are filled in, and between whom it is compared.

Must not compare. Invariant: a rank's own loss, gradient norm and times are not among them: they differ in healthy jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One of them."""

    series: str
    words: str
    """As it stands in a sentence."""
    holds: bool = True
    """A value holds until the next one; else it is of its own step alone."""
    by_stage: bool = False
    """Stages of a pipeline have their own."""


FACTS = (
    Fact(series="amp.scale", words="loss scale"),
    Fact(series="amp.skipped", words="skipped"),
    Fact(series="opt.steps", words="applied steps"),
    Fact(series="lr", words="learning rate", by_stage=True),
    Fact(series="weights.checksum", words="weights", holds=False, by_stage=True),
)
STEP_COUNT = "step count"
"""How many steps ranks made that ended by their own word."""
_STAGES = ("pipeline", "pipe", "pp")
"""Names of the dimension of a mesh along which ranks hold other layers."""


def stage_of(mesh: Mapping[str, tuple[int, int]]) -> int:
    """The stage of a pipeline in which a rank is; 0 where there is none."""
    return next((mesh[name][0] for name in _STAGES if name in mesh), 0)
