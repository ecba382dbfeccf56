"""Whether a rank is stuck while others wait for it, and which ranks were never heard of: the two questions to a clock.

Must not write the answers. Invariant: who waits and who is waited for is told by steps alone: a rank is stuck where
most others have completed a step more, none completes any, and its agent is still heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halfscope_server.ranks.findings import Finding
from halfscope_server.ranks.following import MISSING, Followed, Member

STUCK_US = 5_000_000
"""No rank completes a step for so long, at least."""
GAPS = 3
"""Or so many times the longest pause that the run has made before: validations and checkpoints are no news."""
HEARD_US = 20_000_000
"""An agent that was heard of so lately is there; of others it is contact that is lost."""
MISSING_US = 60_000_000
"""So long after the first rank of an attempt its other ranks are waited for."""


@dataclass(slots=True)
class _Progress:
    steps: dict[int, int]
    since_us: int
    gap_us: int = 0
    is_told: bool = False


class Stuck:
    """Remembers since when each run stands still."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, int], _Progress] = {}

    def found(self, run_id: str, members: Mapping[int, Member], *, now_us: int) -> Finding | None:
        """The ranks that are stuck now; each standstill is told once.

        Args:
            members: of the newest attempt.
            now_us: the server's clock.
        """
        if not members:
            return None
        attempt = next(iter(members.values())).stream.attempt
        steps = {rank: member.last_step for rank, member in members.items()}
        progress = self._runs.get((run_id, attempt))
        if progress is None:
            self._runs[run_id, attempt] = _Progress(steps, now_us)
            return None
        if steps != progress.steps:
            gap_us = max(progress.gap_us, now_us - progress.since_us)
            self._runs[run_id, attempt] = _Progress(steps, now_us, gap_us)
            return None
        silent_us = now_us - progress.since_us
        if progress.is_told or silent_us < max(STUCK_US, GAPS * progress.gap_us):
            return None
        stuck = _waited_for(members, now_us)
        if not stuck:
            return None
        progress.is_told = True
        last_step = min(members[rank].last_step for rank in stuck)
        return Finding(
            attempt=attempt,
            step=max(0, last_step),
            kind="rank_stuck",
            severity="warning",
            key=",".join(map(str, stuck)),
            attributes={
                "ranks": stuck,
                "last_step": last_step,
                "others_step": max(steps.values()),
                "silent_s": round(silent_us / 1e6, 1),
            },
        )

    def forget(self, run_id: str) -> None:
        """The run is over."""
        for key in [key for key in self._runs if key[0] == run_id]:
            del self._runs[key]


def _waited_for(members: Mapping[int, Member], now_us: int) -> list[int]:
    """Ranks behind all others, where those are the most and all are there."""
    there = {rank: member for rank, member in members.items() if not member.has_ended}
    if len(there) < 2 or any(now_us - member.stream.seen_us > HEARD_US for member in there.values()):
        return []
    furthest = max(member.last_step for member in there.values())
    behind = sorted(rank for rank, member in there.items() if member.last_step < furthest)
    return behind if 0 < len(behind) <= len(there) / 2 else []


class Missing:
    """Remembers since when ranks are waited for that were never heard of."""

    def __init__(self) -> None:
        self._since_us: dict[tuple[str, int], int] = {}

    def found(self, followed: Followed, *, now_us: int) -> Finding | None:
        """Ranks of the newest attempt that were waited for long enough; each is told once."""
        place = (followed.run_id, followed.attempt)
        if not followed.missing_unsaid:
            self._since_us.pop(place, None)
            return None
        if now_us - self._since_us.setdefault(place, now_us) < MISSING_US:
            return None
        del self._since_us[place]
        return Finding(
            attempt=followed.attempt,
            step=0,
            kind=MISSING,
            severity="info",
            key=",".join(map(str, followed.missing[:64])),
            attributes={"ranks": list(followed.missing), "world_size": followed.world_size},
        )
