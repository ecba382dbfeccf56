"""What the judge has found of an attempt, as the report says it.

Must not judge. Invariant: plain values; an empty one says that nothing was compared yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halfscope_server.ranks.communication import BucketError
from halfscope_server.ranks.types import Agreement, Straggler


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """See the module."""

    agreement: tuple[Agreement, ...] = ()
    straggler: Straggler | None = None
    num_nonfinite: Mapping[int, int] = field(default_factory=dict)
    """Of each rank, where it is known."""
    first_nonfinite: Mapping[int, int] = field(default_factory=dict)
    last_steps: Mapping[int, int] = field(default_factory=dict)
    """Of each rank; empty: they were not looked at."""
    errors: tuple[BucketError, ...] | None = None
    """Of the newest step whose slices were judged; None: none were."""
    missing: tuple[int, ...] = ()
    """Ranks that sent nothing, where they were waited for long enough."""
