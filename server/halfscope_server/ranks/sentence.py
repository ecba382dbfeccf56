"""The one thing to know of a run's ranks, in words.

Must not read or judge. Invariant: the worst that is known is what is said, and nothing is called healthy that was not
compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from halfscope_server.ranks.communication import TOLERATED
from halfscope_server.ranks.judgement import Judgement
from halfscope_server.ranks.types import Agreement, Bucket, Origin, Parting, RankRow

Role = Literal["healthy", "unhealthy", "failed", "unknown"]

RECENT_STEPS = 200
"""A step that was not finite is the thing to know for so long."""
MAX_NAMED = 4


def sentence(
    ranks: Sequence[RankRow],
    judged: Judgement,
    origins: Sequence[Origin],
    buckets: Sequence[Bucket],
    *,
    world_size: int,
) -> tuple[str, Role]:
    """The sentence and how bad it is."""
    return (
        _dead(ranks)
        or _parted(judged)
        or _began(ranks, origins)
        or _straggles(judged)
        or _inexact(buckets)
        or _well(ranks, judged, world_size)
    )


def _dead(ranks: Sequence[RankRow]) -> tuple[str, Role] | None:
    """Ranks that are stuck, or gone while they should not be."""
    stuck = [row for row in ranks if row.state == "stuck"]
    if stuck:
        step = min((row.last_step for row in stuck if row.last_step is not None), default=None)
        since = "" if step is None else f" since step {step:,}"
        verb = "completes" if len(stuck) == 1 else "complete"
        return f"{named(stuck)} {verb} no step{since}; the others wait.", "failed"
    for state, words in (
        ("killed", "was killed"),
        ("exception", "ended by an exception"),
        ("lost_contact", "has lost contact"),
    ):
        gone = [row for row in ranks if row.state == state]
        if gone:
            steps = {row.last_step for row in gone if row.last_step is not None}
            at = f" after step {steps.pop():,}" if len(steps) == 1 else ""
            plural = {"was killed": "were killed", "has lost contact": "have lost contact"}.get(words, words)
            return f"{named(gone)} {words if len(gone) == 1 else plural}{at}.", "failed"
    return None


def _parted(judged: Judgement) -> tuple[str, Role] | None:
    parted = [one for one in judged.agreement if one.outcome == "parted" and one.first is not None]
    told = [one for one in parted if one.fact != "step count"]
    if not told:
        return None
    first = min(told, key=_first_step)
    parting = first.first
    assert parting is not None
    is_over = all(one.last is not None and one.last.last_step is not None for one in told)
    text = parting_text(parting)
    return (f"{text}; they agree again since.", "unhealthy") if is_over else (f"{text}.", "failed")


def _first_step(one: Agreement) -> tuple[int, int]:
    assert one.first is not None
    return one.first.attempt, one.first.first_step


def parting_text(parting: Parting) -> str:
    """`Rank 1 parts from the others in loss scale at step 0: 1,024 instead of 65,536`."""
    verb = "parts" if len(parting.ranks) == 1 else "part"
    values = dict.fromkeys(number(value) for value in parting.values)
    given = f": {', '.join(list(values)[:MAX_NAMED])} instead of {number(parting.expected)}"
    if parting.fact == "weights":
        given = ""  # checksums say nothing to anybody
    return (
        f"{ranks_named(parting.ranks)} {verb} from the others in {parting.fact} at step {parting.first_step:,}{given}"
    )


def _began(ranks: Sequence[RankRow], origins: Sequence[Origin]) -> tuple[str, Role] | None:
    newest = max((row.last_step for row in ranks if row.last_step is not None), default=0)
    if not origins or origins[0].attempt != max((row.attempt for row in ranks), default=0):
        return None
    origin = origins[0]
    if origin.step <= newest - RECENT_STEPS:
        return None
    layers = f" in {origin.layers[0]}" if origin.layers else ""
    more = f" and {len(origin.layers) - 1} more" if len(origin.layers) > 1 else ""
    if origin.kind == "reduction":
        return (
            f"Step {origin.step:,} became NaN or Inf in the reduction: every rank's own gradient was finite.",
            "unhealthy",
        )
    where = "the gradient of" if origin.kind == "backward" else "the compression on"
    who = f"{ranks_named(origin.ranks).lower()}{layers}{more}"
    return f"Step {origin.step:,} became NaN or Inf in {where} {who}.", "unhealthy"


def _straggles(judged: Judgement) -> tuple[str, Role] | None:
    straggler = judged.straggler
    if straggler is None:
        return None
    return (
        f"Rank {straggler.rank} holds the others up since step {straggler.since_step:,}: "
        f"{straggler.extra_s * 1e3:,.3g} ms a step, {straggler.cost_share:.0%} of the step time.",
        "unhealthy",
    )


def _inexact(buckets: Sequence[Bucket]) -> tuple[str, Role] | None:
    worst = max((one for one in buckets if one.error is not None), key=lambda one: one.error or 0.0, default=None)
    if worst is None or worst.error is None or worst.error <= TOLERATED:
        return None
    layer = f", worst in {worst.worst_layer}" if worst.worst_layer else ""
    return f"The reduction of bucket {worst.bucket} is off by {worst.error:.2%}{layer}.", "unhealthy"


def _well(ranks: Sequence[RankRow], judged: Judgement, world_size: int) -> tuple[str, Role]:
    if len(ranks) < world_size:
        seen = {row.rank for row in ranks}
        missing = [rank for rank in range(world_size) if rank not in seen]
        verb = "has" if len(missing) == 1 else "have"
        return f"{ranks_named(missing)} of {world_size:,} {verb} sent nothing yet.", "unknown"
    if not any(one.outcome == "agree" for one in judged.agreement):
        return "Nothing was compared over ranks yet.", "unknown"
    if all(row.state == "finished" for row in ranks):
        return f"All {world_size:,} ranks agreed to the end.", "healthy"
    return f"All {world_size:,} ranks agree and none holds the others up.", "healthy"


def named(ranks: Sequence[RankRow]) -> str:
    """`Rank 3`, `Ranks 1, 2 and 3`."""
    return ranks_named([row.rank for row in ranks])


def ranks_named(ranks: Sequence[int]) -> str:
    """`Rank 3`, `Ranks 1, 2 and 3`, `Ranks 0, 1, 2, 3 and 60 more`."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > MAX_NAMED + 1:
        return f"Ranks {', '.join(map(str, ranks[:MAX_NAMED]))} and {len(ranks) - MAX_NAMED:,} more"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def number(value: float | None) -> str:
    """As it stands in a sentence."""
    if value is None:
        return "nothing"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
