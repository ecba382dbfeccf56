"""What is written into a run's events: partings, overflows in the reduction, stragglers, ranks that are stuck.

Must not write them. Invariant: one thing that was found has one identity (attempt, kind, step, key), whoever finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halfscope_server.ranks.communication import BucketError
from halfscope_server.ranks.straggling import BLOCK, Block, Slow
from halfscope_server.ranks.types import Parting

MAX_RANKS_TOLD = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One event to be."""

    attempt: int
    step: int
    kind: str
    severity: str
    key: str = ""
    """Tells apart what is found of one kind at one step."""
    attributes: Mapping[str, Any] = field(default_factory=dict)


def of_parting(parting: Parting) -> Finding:
    """Ranks that part from the others, at the first step."""
    told = min(len(parting.ranks), MAX_RANKS_TOLD)
    return Finding(
        attempt=parting.attempt,
        step=parting.first_step,
        kind="rank_disagreement",
        severity="critical",
        key=parting.fact,
        attributes={
            "fact": parting.fact,
            "ranks": list(parting.ranks[:told]),
            "num_ranks": len(parting.ranks),
            "values": list(parting.values[:told]),
            "expected": parting.expected,
        },
    )


def of_overflow(attempt: int, step: int) -> Finding:
    """The sum was not finite, and all that went into it was."""
    return Finding(attempt=attempt, step=step, kind="comm_overflow", severity="warning", attributes={"in": "reduction"})


def of_comm_error(error: BucketError, layer: str, tolerated: float) -> Finding:
    """What a reduction gets wrong now, where that has changed by much."""
    return Finding(
        attempt=error.attempt,
        step=error.step,
        kind="comm_error",
        severity="warning" if error.error > tolerated else "info",
        attributes={
            "error": error.error,
            "bucket": error.bucket,
            "worst_layer": layer,
            "worst_error": error.worst_error,
        },
    )


def of_straggler(attempt: int, slow: Slow, block: Block) -> Finding:
    """A rank that begins to hold the others up, at the end of the block that shows it."""
    return Finding(
        attempt=attempt,
        step=block.first_step + BLOCK - 1,
        kind="straggler",
        severity="warning",
        key=str(slow.rank),
        attributes={
            "rank": slow.rank,
            "since_step": slow.since_step,
            "busy_s": slow.busy_s,
            "others_s": slow.others_s,
            "extra_s": slow.extra_s,
            "cost_share": slow.cost_share,
        },
    )
