"""Whether a rank is stuck while others wait for it, and which ranks were never heard of: the two questions to a clock.

Must not write the answers. Invariant: a rank is named only where all ranks of the run are heard of, none of them
completes a step, and what they say of where they stand, or that one of them says nothing, leaves nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from halfscope_server.ranks.findings import Finding
from halfscope_server.ranks.following import MISSING, Followed, Member
from halfscope_server.store.store import Store

STUCK_US = 5_000_000
"""No rank completes a step for so long, at least."""
GAPS = 3
"""Or so many times the longest pause that the run has made before: validations and checkpoints are no news."""
SILENT_US = 6_000_000
"""So long a rank is given to say where it stands, where the others have said so: agents speak after 3 s."""
SILENT_GAPS = 1.5
"""Likewise of a silent one. A validation does not silence a process; only what holds the interpreter does, as packing a
checkpoint."""
BATCH_STEPS = 16
"""Of short steps agents tell so many together: ranks that are no further apart may be at the same step."""
STANDING = "rank.standing_s"
"""What ranks say of themselves when they stand still, by phase."""
PHASES = ("between", "attempt", "reduction")
"""In the order in which they follow each other: in the last a rank waits for the others."""
HEARD_US = 20_000_000
"""An agent that was heard of so lately is there; of others it is contact that is lost."""
MISSING_US = 60_000_000
"""So long after the first rank of an attempt its other ranks are waited for."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a rank stands, by its own word."""

    step: int
    """The last complete one."""
    phase: int
    """Index of `PHASES`."""

    @property
    def waits(self) -> bool:
        return self.phase == len(PHASES) - 1


def places(store: Store, run_id: str, members: Mapping[int, Member]) -> dict[int, Place]:
    """The ranks that have said where they stand, and have not gone on since."""
    attempts = {member.stream.attempt for member in members.values()}
    found: dict[int, Place] = {}
    for row in store.series(run_id):
        phase = row.labels.get("phase", "")
        if row.name != STANDING or phase not in PHASES:
            continue
        for attempt in attempts:
            for rank, extent in store.rank_extents(run_id, row.series_id, attempt=attempt).items():
                place = Place(extent.last_step, PHASES.index(phase))
                if rank in members and place.step >= members[rank].last_step and place > found.get(rank, _NOWHERE):
                    found[rank] = place
    return found


_NOWHERE = Place(-1, -1)


@dataclass(slots=True)
class _Progress:
    steps: dict[int, int]
    since_us: int
    gap_us: int = 0
    is_told: bool = False


class Stuck:
    """Remembers since when each run stands still."""

    def __init__(self, places: Callable[[str, Mapping[int, Member]], Mapping[int, Place]]) -> None:
        """
        Args:
            places: where the members of a run stand by their own word; asked only where they stand still.
        """
        self._places = places
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
            gap_us = progress.gap_us
            if min(progress.steps.values()) >= 0:  # what comes before the first steps is no pause
                gap_us = max(gap_us, now_us - progress.since_us)
            self._runs[run_id, attempt] = _Progress(steps, now_us, gap_us)
            return None
        silent_us = now_us - progress.since_us
        if progress.is_told or silent_us < STUCK_US:
            return None
        there = {rank: member for rank, member in members.items() if not member.has_ended}
        if len(there) < 2 or any(now_us - member.stream.seen_us > HEARD_US for member in there.values()):
            return None
        places = self._places(run_id, there)
        stuck = _silent(there, places)
        if silent_us < (max(SILENT_US, SILENT_GAPS * progress.gap_us) if stuck else GAPS * progress.gap_us):
            return None
        stuck = stuck or _waited_for(there, places)
        if not stuck:
            return None
        progress.is_told = True
        # Of short steps the last are not told yet; their own word is.
        steps |= {rank: place.step for rank, place in places.items()}
        last_step = min(steps[rank] for rank in stuck)
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


def _silent(there: Mapping[int, Member], places: Mapping[int, Place]) -> list[int]:
    """Ranks that do not say where they stand, though others do: the process itself does not run. Its sender does, for
    it is heard of."""
    return sorted(there.keys() - places.keys()) if places else []


def _waited_for(there: Mapping[int, Member], places: Mapping[int, Place]) -> list[int]:
    """Ranks that the others wait for; empty where that cannot be known.

    Args:
        there: those that are heard of and have not ended.
        places: of those that have said where they stand: all of them, or nobody.
    """
    if not places:
        return _behind({rank: member.last_step for rank, member in there.items()}, apart=BATCH_STEPS)
    if behind := _behind({rank: place.step * len(PHASES) + min(place.phase, 1) for rank, place in places.items()}):
        return behind
    if any(place.waits for place in places.values()):
        return sorted(rank for rank, place in places.items() if not place.waits)
    return []


def _behind(places: Mapping[int, int], *, apart: int = 0) -> list[int]:
    """Those that are further behind the first than `apart`, where they are at most half."""
    furthest = max(places.values())
    behind = sorted(rank for rank, place in places.items() if place < furthest - apart)
    return behind if len(behind) <= len(places) / 2 else []


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
