"""What the judge has found of an attempt, as the report says it.

Must not judge. Invariant: plain values; an empty one says that nothing was compared yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from halfscope_server.ranks.types import Agreement, Straggler


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """See the module."""

    agreement: tuple[Agreement, ...] = ()
    straggler: Straggler | None = None
    missing: tuple[int, ...] = ()
    """Ranks that sent nothing, where they were waited for long enough."""
