"""The judge of one attempt: what its ranks agree in, step by step, and who holds the others up.

Must not read or write the store, nor ask a clock. Invariant: what it finds is a function of each rank's own data and of
which ranks count up to which step; not of the order in which ranks were heard, of how steps were cut into windows, or
of where it was saved and went on.

Suffixes: R ranks, S steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from halfscope_server.ranks.communication import TOLERATED, BucketError
from halfscope_server.ranks.facts import FACTS, Fact
from halfscope_server.ranks.findings import Finding, of_comm_error, of_overflow, of_parting, of_straggler
from halfscope_server.ranks.reading import RankPoints
from halfscope_server.ranks.straggling import BLOCK, Block, Slow, slowest
from halfscope_server.ranks.types import Agreement, Parting

MAX_STRETCHES = 64
"""Of partings that are kept: more than a bar on a page can show apart."""
NUM_AGREED = 50
"""Steps in which ranks must agree again until what parts them is over; a flag that flickers is one finding."""
LEAST_ERROR = 1e-3
"""Of a reduction: below it changes are told to nobody."""
CHANGED_BY = 2.0
"""Times, since it was told last."""

Ints = NDArray[np.int64]
Key = str
"""A series with its labels: `amp.scale scaler=0`."""
Points = Mapping[int, RankPoints]
"""Of one series, by rank."""
_NO_NAN = np.float64(np.nan).view(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The next steps that all ranks have passed that count."""

    first_step: int
    last_step: int
    counts_to: Mapping[int, int]
    """Of each rank the last step at which it counts: the end of one that ended, else the window's last step or more."""
    stage: Mapping[int, int]
    """Of each rank, of a pipeline."""
    facts: Mapping[Key, tuple[Fact, Points]]
    """The points of these steps."""
    nonfinite: Points = field(default_factory=dict)
    """`grad.nonfinite_local`"""
    norms: Sequence[RankPoints] = ()
    """`grad.norm` of the lowest rank, of each optimizer."""
    compressed: frozenset[int] = frozenset()
    """Steps of which a rank told that the compression of a hook overflowed."""
    blocks: Sequence[Block] = ()
    """Whole blocks of busy times, the next ones."""


@dataclass(slots=True, kw_only=True)
class FactState:
    """One fact, so far."""

    words: str
    held: dict[int, float] = field(default_factory=dict)
    """The newest value of each rank that has told one."""
    num_steps: int = 0
    """Steps that were compared."""
    num_at_last: int = -NUM_AGREED
    """What that was at the last step in which ranks differed."""
    first: Parting | None = None
    last: Parting | None = None
    """`last_step` is the last step in which they differed."""
    stretches: list[tuple[int, int]] = field(default_factory=list)
    """First and last step of each parting."""

    def differ(self, step: int, *, anew: bool) -> None:
        """Note that ranks differed at a step, in the last parting or in one that begins with it."""
        if anew:
            self.stretches.append((step, step))
        else:
            self.stretches[-1] = (self.stretches[-1][0], step)
        if len(self.stretches) > MAX_STRETCHES:
            self.stretches = fewer(self.stretches)

    def agreement(self) -> Agreement:
        last = self.last
        if last is not None and self.num_at_last == self.num_steps:
            last = replace(last, last_step=None)
        first = last if self.first is not None and last is not None and _is_same(self.first, last) else self.first
        outcome = "parted" if last is not None else "agree" if self.num_steps else "unknown"
        return Agreement(
            fact=self.words,
            outcome=outcome,  # type: ignore[arg-type]
            num_steps=self.num_steps,
            first=first,
            last=last,
            stretches=tuple(self.stretches),
        )


@dataclass(slots=True, kw_only=True)
class Judge:
    """See the module; plain values, so that it can be saved."""

    attempt: int
    next_step: int
    """The first step that was not judged."""
    next_block: int = -1
    """The first step of busy times that were not; -1: nothing was read yet."""
    facts: dict[str, FactState] = field(default_factory=dict)
    slow: Slow | None = None
    num_nonfinite: dict[int, int] = field(default_factory=dict)
    """Of each rank, the steps in which its own gradient was not finite before the reduction."""
    first_nonfinite: dict[int, int] = field(default_factory=dict)
    last_bad: int = -1
    """The newest step whose reduced gradient was not finite."""
    slices_to: int = -1
    """The newest step whose slices were compared."""
    told_error: float = 0.0
    """The error of a reduction as it was told last."""
    counted_to: dict[int, int] = field(default_factory=dict)
    """Of each rank, up to which step it was counted."""
    errors: list[BucketError] = field(default_factory=list)
    """Of the newest step whose reductions were judged."""

    def advance(self, window: Window) -> list[Finding]:
        """Judge the next steps; what was found in them, ascending by step."""
        assert window.first_step == self.next_step, "windows follow one another"
        found: list[Finding] = []
        for key, (fact, points) in window.facts.items():
            state = self.facts.setdefault(key, FactState(words=fact.words))
            found += self._compare(state, fact, points, window)
        found += self._overflows(window)
        self._count_nonfinite(window.nonfinite)
        for block in window.blocks:
            found += self._straggles(block)
        self.next_step = window.last_step + 1
        for rank, last in window.counts_to.items():
            self.counted_to[rank] = min(last, window.last_step)
        return sorted(found, key=lambda one: (one.step, one.kind))

    def agreement(self) -> tuple[Agreement, ...]:
        """Of all facts, in the order in which they are asked; of one with several series the worst."""
        return tuple(
            _merged([s.agreement() for s in self.facts.values() if s.words == words]) for words in self._words()
        )

    def _words(self) -> list[str]:
        # What the first rank alone tells can be compared with nothing.
        told = {state.words for state in self.facts.values() if len(state.held) > 1}
        return [fact.words for fact in FACTS if fact.words in told]

    # ---- agreement -----------------------------------------------------------------------------

    def _compare(self, state: FactState, fact: Fact, points: Points, window: Window) -> list[Finding]:
        ranks = sorted(window.counts_to)
        table, known = _table(state, fact, points, window, ranks)
        stage = np.array([window.stage.get(rank, 0) if fact.by_stage else 0 for rank in ranks])
        is_bad = np.zeros(table.shape[1], bool)
        num_known = np.zeros(table.shape[1], np.int64)
        for number in np.unique(stage):
            rows = stage == number
            differs, count = _differs(table[rows], known[rows])
            is_bad |= differs
            num_known = np.maximum(num_known, count)
        compared = np.cumsum(num_known > 1)
        found = []
        for at in np.flatnonzero(is_bad).tolist():
            number, step = state.num_steps + int(compared[at]), window.first_step + at
            if state.last is None or number - state.num_at_last > NUM_AGREED:
                state.last = self._parting(fact, ranks, stage, table[:, at], known[:, at], step)
                state.first = state.first or state.last
                found.append(of_parting(state.last))
                state.differ(step, anew=True)
            else:
                state.differ(step, anew=False)
                state.last = replace(state.last, last_step=step)
                if state.first is not None and _is_same(state.first, state.last):
                    state.first = state.last
            state.num_at_last = number
        state.num_steps += int(compared[-1]) if compared.size else 0
        return found

    def _parting(
        self,
        fact: Fact,
        ranks: Sequence[int],
        stage: Ints,
        bits: Ints,
        known: NDArray[np.bool_],
        step: int,
    ) -> Parting:
        parted: list[tuple[int, float]] = []
        expected: float | None = None
        for number in np.unique(stage):
            rows = [row for row in range(len(ranks)) if stage[row] == number and known[row]]
            most = _majority([int(bits[row]) for row in rows])
            apart = [row for row in rows if bits[row] != most]
            if apart and expected is None:
                expected = _value(most)
            parted += [(ranks[row], _value(int(bits[row]))) for row in apart]
        return Parting(
            fact=fact.words,
            attempt=self.attempt,
            first_step=step,
            last_step=step,
            ranks=tuple(rank for rank, _ in parted),
            values=tuple(value for _, value in parted),
            expected=expected,
        )

    # ---- what was not finite -------------------------------------------------------------------

    def _count_nonfinite(self, nonfinite: Points) -> None:
        for rank, points in nonfinite.items():
            steps = points.step[points.value > 0]
            if steps.size:
                self.num_nonfinite[rank] = self.num_nonfinite.get(rank, 0) + int(steps.size)
                self.first_nonfinite.setdefault(rank, int(steps[0]))

    def _overflows(self, window: Window) -> list[Finding]:
        """Steps that began not to be finite though every rank's own gradient was."""
        steps = [points.step[~np.isfinite(points.value)] for points in window.norms]
        bad = np.unique(np.concatenate(steps)) if steps else np.empty(0, np.int64)
        found = []
        for step in bad.tolist():
            begins = self.last_bad != step - 1
            self.last_bad = step
            own = [_at(window.nonfinite.get(rank), step) for rank, last in window.counts_to.items() if last >= step]
            if begins and step not in window.compressed and own and all(value == 0 for value in own):
                found.append(of_overflow(self.attempt, step))
        return found

    # ---- errors of reductions ------------------------------------------------------------------

    def reduced(self, step: int, errors: Sequence[BucketError], names: Mapping[int, str]) -> list[Finding]:
        """Take in the errors of a step, the next that has slices: told where the largest changed by much."""
        self.slices_to = step
        if not errors:
            return []
        self.errors = list(errors)
        worst = max(errors, key=lambda error: error.error)
        now, before = max(worst.error, LEAST_ERROR), max(self.told_error, LEAST_ERROR)
        if before / CHANGED_BY <= now <= before * CHANGED_BY:
            return []
        self.told_error = worst.error
        return [of_comm_error(worst, names.get(worst.worst_layer_id, ""), TOLERATED)]

    # ---- stragglers ----------------------------------------------------------------------------

    def _straggles(self, block: Block) -> list[Finding]:
        self.next_block = block.first_step + BLOCK
        slow = slowest(block)
        before, self.slow = self.slow, slow
        if slow is None:
            return []
        if before is not None and before.rank == slow.rank:
            self.slow = replace(slow, since_step=before.since_step)
            return []
        return [of_straggler(self.attempt, slow, block)]

    # ---- saved ---------------------------------------------------------------------------------

    def packed(self) -> bytes:
        """As it is kept."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpacked(cls, body: bytes) -> Judge:
        """What `packed` gave.

        Raises:
            msgspec.DecodeError: it was made by another version.
        """
        return msgspec.msgpack.decode(body, type=cls)


def _table(
    state: FactState, fact: Fact, points: Points, window: Window, ranks: Sequence[int]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Values as bits, [R, S], and where they are known; what ranks hold behind the window is kept."""
    num_steps = window.last_step - window.first_step + 1
    table = np.zeros((len(ranks), num_steps), np.int64)
    known = np.zeros((len(ranks), num_steps), bool)
    for row, rank in enumerate(ranks):
        if fact.holds and rank in state.held:
            table[row] = _bits(np.array([state.held[rank]]))[0]
            known[row] = True
        told = points.get(rank)
        if told is not None and told.step.size:
            at = told.step - window.first_step
            if fact.holds:
                lengths = np.diff(at, append=num_steps)
                table[row, at[0] :] = np.repeat(_bits(told.value), lengths)
                known[row, at[0] :] = True
            else:
                table[row, at], known[row, at] = _bits(told.value), True
            state.held[rank] = float(told.value[-1])
        known[row, max(0, window.counts_to[rank] - window.first_step + 1) :] = False
    return table, known


def _differs(table: Ints, known: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Ints]:
    """At which steps known values differ, and how many are known."""
    count = known.sum(axis=0)
    if known.all():
        return (table != table[:1]).any(axis=0), count
    smallest = np.where(known, table, np.iinfo(np.int64).max).min(axis=0, initial=np.iinfo(np.int64).max)
    largest = np.where(known, table, np.iinfo(np.int64).min).max(axis=0, initial=np.iinfo(np.int64).min)
    return (count > 1) & (smallest != largest), count


def _bits(values: NDArray[np.float64]) -> Ints:
    """By which values are compared: 0 is -0, and NaN is NaN."""
    bits = (values + 0.0).view(np.int64)
    return np.where(np.isnan(values), _NO_NAN, bits)


def _value(bits: int) -> float:
    return float(np.int64(bits).view(np.float64))


def _majority(bits: Sequence[int]) -> int:
    """What most have; of a tie, what the lowest rank among them has."""
    counts = Counter(bits)
    most = max(counts.values())
    return next(value for value in bits if counts[value] == most)


def _at(points: RankPoints | None, step: int) -> float | None:
    if points is None:
        return None
    at = int(np.searchsorted(points.step, step))
    return float(points.value[at]) if at < points.step.size and points.step[at] == step else None


def _is_same(one: Parting, other: Parting) -> bool:
    return (one.attempt, one.first_step) == (other.attempt, other.first_step)


def fewer(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of steps, ascending and at most `MAX_STRETCHES`: those that overlap as one, then those that are nearest
    to each other."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    while len(joined) > MAX_STRETCHES:
        at = min(range(len(joined) - 1), key=lambda place: joined[place + 1][0] - joined[place][1])
        joined[at : at + 2] = [(joined[at][0], joined[at + 1][1])]
    return joined


def _merged(found: Iterable[Agreement]) -> Agreement:
    """Of several series of one fact: the first and the last parting of any."""
    every = list(found)
    firsts = [one.first for one in every if one.first is not None]
    lasts = [one.last for one in every if one.last is not None]
    outcome = "parted" if firsts else "agree" if any(one.num_steps for one in every) else "unknown"
    return Agreement(
        fact=every[0].fact,
        outcome=outcome,  # type: ignore[arg-type]
        num_steps=max(one.num_steps for one in every),
        first=min(firsts, key=lambda one: one.first_step, default=None),
        last=max(lasts, key=lambda one: (one.last_step is None, one.first_step), default=None),
        stretches=tuple(fewer([stretch for one in every for stretch in one.stretches])),
    )
