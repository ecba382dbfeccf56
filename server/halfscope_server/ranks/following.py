"""One run under judgement: which ranks count how far, and windows of stored data for the judge of each attempt.

Must not write. Invariants: a step is judged when every rank that is there has passed it or has ended, and every rank
that the job has is there, or was said to be missing by a recorded event; where a rank that was left out sends more
after all, its attempt is judged anew from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from halfscope_server.ranks.communication import bucket_errors
from halfscope_server.ranks.facts import FACTS, STEP_COUNT, stage_of
from halfscope_server.ranks.findings import Finding
from halfscope_server.ranks.judge import Judge, Window, fewer
from halfscope_server.ranks.judgement import Judgement
from halfscope_server.ranks.reading import PER_STEP, RankPoints, newest_streams, read
from halfscope_server.ranks.straggling import BLOCK, Block
from halfscope_server.ranks.types import Agreement, Parting, Straggler
from halfscope_server.store.store import Store
from halfscope_server.store.types import SERVER_STREAM, SeriesRow, StreamRow

MAX_CELLS = 1 << 20
"""Ranks times steps of one window: bounds what is in memory at once."""
MAX_STEPS = 8192
MAX_TOLD = 100_000
LATE_STEPS = 16
"""Slices of a step may come so much later than its row."""
STEPS_AT_ONCE = 64
NONFINITE = "grad.nonfinite_local"
MISSING = "ranks_missing"
"""The server's word that ranks sent nothing for long enough."""
LABELS = {fact.series: fact for fact in FACTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One rank of an attempt as it stands."""

    stream: StreamRow
    last_step: int
    """-1: no step yet."""
    has_ended: bool


@dataclass(slots=True, kw_only=True)
class Followed:
    """One run. Not for two threads at once."""

    run_id: str
    store: Store
    judges: dict[int, Judge] = field(default_factory=dict)
    """By attempt."""
    members: dict[int, Member] = field(default_factory=dict)
    """Of the newest attempt, by rank."""
    versions: dict[str, int] = field(default_factory=dict)
    """The store's cursors that everything is taken from; empty: there is more to take."""
    attempt: int = 0
    """The newest."""
    world_size: int = 1
    missing: tuple[int, ...] = ()
    """Of the newest attempt."""
    is_over: bool = False
    """No stream of it is open."""
    _quiet: dict[int, dict[str, tuple[int, str]]] = field(default_factory=dict)
    """By attempt, the cursors and ends of its streams up to which all was judged."""

    def advance(self, *, budget_s: float = 1.0) -> list[Finding]:
        """Judge what can be judged by now, for about as long as the budget says."""
        until_s = time.thread_time() + budget_s
        versions = self.store.versions(self.run_id)
        streams = self.store.streams(self.run_id)
        newest = max((row.attempt for row in streams), default=0)
        self.attempt = newest
        self.is_over = all(row.ended for row in streams)
        self.world_size = max((row.world_size for row in streams if row.attempt == newest), default=1)
        series = self.store.series(self.run_id)
        found: list[Finding] = []
        is_done = True
        for attempt in sorted({row.attempt for row in streams}):
            chosen = newest_streams(streams, attempt)
            quiet = {row.stream: (row.next, row.ended) for row in chosen.values()}
            if self._quiet.get(attempt) == quiet and attempt < newest:
                continue
            told, is_whole = self._advance_attempt(attempt, chosen, series, attempt < newest, until_s)
            found += told
            is_done &= is_whole
            if is_whole:
                self._quiet[attempt] = quiet
        self.versions = versions if is_done else {}
        return found

    def _advance_attempt(
        self,
        attempt: int,
        streams: Mapping[int, StreamRow],
        series: Sequence[SeriesRow],
        is_past: bool,
        until_s: float,
    ) -> tuple[list[Finding], bool]:
        members, first_step = self._members(attempt, streams, series, is_past)
        if not is_past:
            self.members = members
            self.missing = tuple(sorted(set(range(self.world_size)) - members.keys()))
        limit = self._limit(attempt, members, is_past)
        if first_step is None or limit < 0 or len(members) < 2:
            return [], True
        judge = self.judges.get(attempt)
        if judge is None or _is_outdated(judge, members):
            judge = self.judges[attempt] = Judge(attempt=attempt, next_step=first_step)
            judge.next_block = (first_step // BLOCK + 1) * BLOCK
        found: list[Finding] = []
        for window in self._windows(judge, members, series, limit):
            found += judge.advance(window)
            if time.thread_time() > until_s:
                return found, False
        has_ended = all(member.has_ended for member in members.values())
        told, is_whole = self._reductions(judge, limit if has_ended else limit - LATE_STEPS, until_s)
        return found + told, is_whole

    def _reductions(self, judge: Judge, last: int, until_s: float) -> tuple[list[Finding], bool]:
        """The errors of reductions up to a step, one sampled step after the other."""
        found: list[Finding] = []
        names: dict[int, str] | None = None
        while steps := self.store.slice_steps(
            self.run_id, attempt=judge.attempt, after=judge.slices_to, upto=last, limit=STEPS_AT_ONCE
        ):
            if names is None:
                names = {row.layer_id: row.name for row in self.store.layers(self.run_id)}
            for step in steps:
                slices = self.store.slices(self.run_id, first_step=step, last_step=step, attempt=judge.attempt)
                found += judge.reduced(step, bucket_errors(slices, self.world_size), names)
                if time.thread_time() > until_s:
                    return found, False
        return found, True

    def _members(
        self, attempt: int, streams: Mapping[int, StreamRow], series: Sequence[SeriesRow], is_past: bool
    ) -> tuple[dict[int, Member], int | None]:
        """The ranks, and the first step of any; None: there is no step yet."""
        last: dict[int, int] = {}
        first: list[int] = []
        nexts = {stream.stream: stream.next for stream in streams.values()}
        with self.store.rank_table(self.run_id, attempt, nexts) as table:
            if table is not None and attempt in self.judges:
                last, first = table.last_steps(), [table.first_step]
        per_step = sorted((row for row in series if row.name in PER_STEP), key=lambda row: PER_STEP.index(row.name))
        for row in (*per_step, *(row for row in series if row.name in LABELS)):
            if attempt in self.judges and streams.keys() <= last.keys():
                break  # The rows of all are whole: the first series tells how far they are.
            for rank, extent in self.store.rank_extents(self.run_id, row.series_id, attempt=attempt).items():
                last[rank] = max(extent.last_step, last.get(rank, -1))
                first.append(extent.first_step)
        members = {
            rank: Member(stream=stream, last_step=last.get(rank, -1), has_ended=is_past or stream.ended != "")
            for rank, stream in streams.items()
        }
        return members, min(first, default=None)

    def _limit(self, attempt: int, members: Mapping[int, Member], is_past: bool) -> int:
        """The last step that can be judged; -1: none yet."""
        world_size = max((member.stream.world_size for member in members.values()), default=1)
        missing = set(range(world_size)) - members.keys()
        if missing and not is_past and not missing <= self.said_missing(attempt):
            return -1
        open_steps = [member.last_step for member in members.values() if not member.has_ended]
        if open_steps:
            return min(open_steps)
        return max((member.last_step for member in members.values()), default=-1)

    def said_missing(self, attempt: int) -> set[int]:
        """Ranks of an attempt that a recorded event calls missing."""
        told = self.store.events(self.run_id, kinds=(MISSING,), newest_first=True)
        return {rank for event in told if event.attempt == attempt for rank in event.attributes.get("ranks", ())}

    @property
    def missing_unsaid(self) -> bool:
        """Whether ranks are waited for."""
        return bool(self.missing) and not set(self.missing) <= self.said_missing(self.attempt)

    def _windows(
        self, judge: Judge, members: Mapping[int, Member], series: Sequence[SeriesRow], limit: int
    ) -> Iterator[Window]:
        length = max(BLOCK, min(MAX_STEPS, MAX_CELLS // len(members)))
        while judge.next_step <= limit:
            yield self._window(judge, members, series, judge.next_step, min(limit, judge.next_step + length - 1))

    def _window(
        self, judge: Judge, members: Mapping[int, Member], series: Sequence[SeriesRow], first: int, last: int
    ) -> Window:
        wanted = [row for row in series if row.name in LABELS or row.name == NONFINITE]
        points = read(self.store, self.run_id, wanted, attempt=judge.attempt, first_step=first, last_step=last)
        lowest = min(members)
        norms = [
            part
            for row in series
            if row.name == "grad.norm"
            for part in self._of_rank(row, judge.attempt, lowest, first, last)
        ]
        counts_to = {
            rank: member.last_step if member.has_ended else max(last, member.last_step)
            for rank, member in members.items()
        }
        return Window(
            first_step=first,
            last_step=last,
            counts_to=counts_to,
            stage={rank: stage_of(member.stream.mesh) for rank, member in members.items()},
            facts={_key(row): (LABELS[row.name], points[row.series_id]) for row in wanted if row.name in LABELS},
            nonfinite=next((points[row.series_id] for row in wanted if row.name == NONFINITE), {}),
            norms=norms,
            compressed=self._compressed(judge.attempt, first, last) if norms else frozenset(),
            blocks=self._blocks(judge, series, counts_to, lowest, last),
        )

    def _of_rank(self, row: SeriesRow, attempt: int, rank: int, first: int, last: int) -> list[RankPoints]:
        points = self.store.points(
            self.run_id, row.series_id, rank=rank, attempt=attempt, first_step=first, last_step=last
        )
        return [RankPoints(step=points.step, value=points.value)] if points.step.size else []

    def _compressed(self, attempt: int, first: int, last: int) -> frozenset[int]:
        told = self.store.events(
            self.run_id, kinds=("comm_overflow",), first_step=first, last_step=last, limit=MAX_TOLD
        )
        return frozenset(e.step for e in told if e.attempt == attempt and e.stream != SERVER_STREAM)

    def _blocks(
        self, judge: Judge, series: Sequence[SeriesRow], counts_to: Mapping[int, int], lowest: int, last: int
    ) -> list[Block]:
        """The whole blocks of busy times up to a step."""
        busy = next((row for row in series if row.name == "rank.busy_s"), None)
        end = (last + 1) // BLOCK * BLOCK
        if busy is None or end <= judge.next_block:
            return []
        start = judge.next_block
        (points,) = read(
            self.store, self.run_id, [busy], attempt=judge.attempt, first_step=start, last_step=end - 1
        ).values()
        times = [
            part
            for row in series
            if row.name == "time.step_s"
            for part in self._of_rank(row, judge.attempt, lowest, start, end - 1)
        ]
        return [_block(first, points, times, counts_to) for first in range(start, end, BLOCK)]

    # ---- what is said ----------------------------------------------------------------------------

    def judgement(self) -> Judgement:
        """Of all attempts, as far as they are judged."""
        by_fact: dict[str, list[Agreement]] = {}
        for _, judge in sorted(self.judges.items()):
            for agreement in judge.agreement():
                by_fact.setdefault(agreement.fact, []).append(agreement)
        merged = [_over_attempts(found) for found in by_fact.values()]
        counted = self._step_count()
        newest = self.judges[max(self.judges)] if self.judges else None
        slow = newest.slow if newest is not None else None
        return Judgement(
            agreement=(*merged, *([counted] if counted is not None else [])),
            straggler=None
            if slow is None
            else Straggler(
                rank=slow.rank, since_step=slow.since_step, extra_s=slow.extra_s, cost_share=slow.cost_share
            ),
            num_nonfinite={} if newest is None else dict(newest.num_nonfinite),
            first_nonfinite={} if newest is None else dict(newest.first_nonfinite),
            errors=tuple(newest.errors) if newest is not None and newest.errors else None,
            missing=self.missing,
            last_steps={rank: member.last_step for rank, member in self.members.items() if member.last_step >= 0},
        )

    def _step_count(self) -> Agreement | None:
        """Whether ranks that ended by their own word made the same number of steps; None: that is not known yet."""
        steps = {rank: m.last_step for rank, m in self.members.items() if m.stream.ended == "finished"}
        if len(steps) < 2 or len(steps) < len(self.members):
            return None
        counts = list(steps.values())
        most = max(set(counts), key=lambda step: (counts.count(step), step == steps[min(steps)]))
        apart = {rank: step for rank, step in sorted(steps.items()) if step != most}
        first = None
        if apart:
            first = Parting(
                fact=STEP_COUNT,
                attempt=max(member.stream.attempt for member in self.members.values()),
                first_step=min(*apart.values(), most) + 1,
                last_step=None,
                ranks=tuple(apart),
                values=tuple(float(step + 1) for step in apart.values()),
                expected=float(most + 1),
            )
        return Agreement(
            fact=STEP_COUNT,
            outcome="parted" if apart else "agree",
            num_steps=max(counts) + 1,
            first=first,
            last=first,
            stretches=() if first is None else ((first.first_step, max(counts) - 1),),
        )

    # ---- saved -----------------------------------------------------------------------------------

    def packed(self) -> bytes:
        """As it is kept."""
        return msgspec.msgpack.encode({attempt: judge.packed() for attempt, judge in self.judges.items()})

    def take(self, body: bytes) -> None:
        """Go on from what was kept; what another version kept is judged anew."""
        try:
            kept = msgspec.msgpack.decode(body, type=dict[int, bytes])
            self.judges = {attempt: Judge.unpacked(judge) for attempt, judge in kept.items()}
        except msgspec.DecodeError:
            self.judges = {}


def _is_outdated(judge: Judge, members: Mapping[int, Member]) -> bool:
    """Whether a rank that was not counted at a step that was judged has told of it since."""
    judged = judge.next_step - 1
    for rank, member in members.items():
        counted = judge.counted_to.get(rank, -1)
        if counted < min(judged, member.last_step):
            return True
    return False


def _block(
    first: int, points: Mapping[int, RankPoints], times: Sequence[RankPoints], counts_to: Mapping[int, int]
) -> Block:
    ranks = tuple(rank for rank in sorted(points) if counts_to.get(rank, -1) >= first + BLOCK - 1)
    busy_s = np.full((len(ranks), BLOCK), np.nan)
    for row, rank in enumerate(ranks):
        told = _between(points[rank], first)
        busy_s[row, told.step - first] = told.value
    steps = [_between(part, first).value for part in times]
    step_s = np.concatenate(steps) if steps else np.empty(0)
    return Block(
        first_step=first,
        ranks=ranks,
        busy_s=np.where(np.isfinite(busy_s), busy_s, np.nan),
        step_s=float(np.median(step_s)) if step_s.size else None,
    )


def _between(points: RankPoints, first: int) -> RankPoints:
    at = slice(*np.searchsorted(points.step, [first, first + BLOCK]).tolist())
    return RankPoints(step=points.step[at], value=points.value[at])


def _over_attempts(found: Sequence[Agreement]) -> Agreement:
    parted = [one for one in found if one.first is not None]
    last = found[-1]
    first = parted[0].first if parted else None
    if parted and parted[-1] is not last and parted[-1].last is not None and parted[-1].last.last_step is None:
        # A restart ended it.
        ended = replace(parted[-1].last, last_step=parted[-1].last.first_step)
        last_parting: Parting | None = ended
    else:
        last_parting = parted[-1].last if parted else None
    return Agreement(
        fact=last.fact,
        outcome="parted" if parted else last.outcome,
        num_steps=sum(one.num_steps for one in found),
        first=first,
        last=last_parting,
        stretches=tuple(fewer([stretch for one in found for stretch in one.stretches])),
    )


def _key(row: SeriesRow) -> str:
    return " ".join([row.name, *(f"{name}={value}" for name, value in sorted(row.labels.items()))])
