"""What the page of ranks asks of a job while it runs, kept up to date by what is committed: nothing is read for it.

For each rank the newest values, those of the last steps, and the largest of each stretch of steps. Must not read or
write the database: what was committed before this server, or by another, is brought by `rank_reading`. Invariants: a
table has everything that its streams were given from their first record on up to a seq (`taken`); where that is less
than what is asked for it does not stand for them (`covers`); memory is bounded.

Suffixes: R ranks, K last steps, C stretches of steps, N values that came together.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from halfscope.wire.messages import Points
from numpy.typing import NDArray

from halfscope_server.store.cursors import StreamState
from halfscope_server.store.records import Decoded, series_id

if TYPE_CHECKING:
    from halfscope_server.store.rank_reading import Lacking, Values

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RECENT_STEPS = 256
"""Of each rank, at most, whose values are kept."""
MAX_STRETCHES = 240
"""Then the stretches become twice as long: as many as a heatmap has columns."""
MAX_BYTES = 256 * 1024 * 1024
"""Of all tables; the one not asked for longest goes. A job of 1,024 ranks takes some 60 MiB."""
SETTLE_BYTES = 4 * 1024 * 1024
"""Of records of one job that wait to be taken into its table; beyond it whoever commits does that, at some 20 us a
batch, so that a job that nobody looks at need not be read by the first who does."""
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""Of one job where its table is looked at all the while; beyond it the table is given up."""
MAX_TABLES = 64
MAX_BUCKETS = 64


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of a series."""

    recent_steps: int = 1
    """Of each rank."""
    stretches: bool = True
    by_rank: bool = True
    """Whether the stretches are those of each rank, or of all together."""


WANTED = {
    series_id("time.step_s", {}): _Kept(RECENT_STEPS),
    series_id("rank.busy_s", {}): _Kept(RECENT_STEPS),
    series_id("comm.wait_s", {}): _Kept(RECENT_STEPS),
    series_id("grad.norm_local", {}): _Kept(),
    series_id("grad.nonfinite_local", {}): _Kept(),
    series_id("memory.device_allocated_bytes", {}): _Kept(),
    series_id("memory.rss_bytes", {}): _Kept(),
    # How far the job is.
    series_id("loss", {}): _Kept(stretches=False),
    series_id("amp.scale", {}): _Kept(stretches=False),
    series_id("grad.norm", {}): _Kept(stretches=False),
} | {
    series_id(name, {"bucket": str(bucket)}): kept
    for bucket in range(MAX_BUCKETS)
    for name, kept in (
        ("comm.time_s", _Kept(RECENT_STEPS, by_rank=False)),
        ("comm.bytes", _Kept(stretches=False)),
    )
}
_PER_STEP = series_id("time.step_s", {})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretches:
    """The largest value of each rank in each stretch of steps that has any."""

    width: int
    ranks: Ints
    """[R]; one row for all of them where a series is kept for all together."""
    step: Ints
    """[C] first step of each stretch, and the earliest time in it."""
    time_us: Ints
    high: Floats
    """[R, C]; NaN: none that is finite."""
    num_bad: Ints
    """[R, C] values that were not finite."""


@dataclass(slots=True, kw_only=True)
class _Waiting:
    rank: int
    stream: str
    first: int
    end_seq: int
    is_begin: bool
    points: Sequence[Points]
    sids: Mapping[int, int]


class _Told:
    """Values of all ranks that came together. Most series have one on every row of a record, so that their steps, times
    and ranks are put together once for all of them."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._steps: list[bytes] = []
        self._times_us: list[bytes] = []
        self._series: dict[int, tuple[list[int], list[bytes]]] = {}
        """Places in those lists, and the values of each."""

    def add(self, points: Points, sids: Mapping[int, int], row: int) -> None:
        """A record of a rank."""
        whole = self._place(row, points.steps, points.times_us)
        for column in points.columns:
            of = sids[column.sid]
            if of not in WANTED:
                continue
            at = whole
            if column.rows:
                rows = np.frombuffer(column.rows, "<u4")
                steps, times_us = (np.frombuffer(all_, "<i8")[rows] for all_ in (points.steps, points.times_us))
                at = self._place(row, steps.tobytes(), times_us.tobytes())
            self._append(of, at, column.values)

    def add_values(self, one: Values, row: int) -> None:
        """Of one series of a rank."""
        self._append(one.series_id, self._place(row, one.steps, one.times_us), one.values)

    def _place(self, row: int, steps: bytes, times_us: bytes) -> int:
        self._rows.append(row)
        self._steps.append(steps)
        self._times_us.append(times_us)
        return len(self._rows) - 1

    def _append(self, of: int, at: int, values: bytes) -> None:
        places, parts = self._series.setdefault(of, ([], []))
        places.append(at)
        parts.append(values)

    def columns(self) -> dict[int, tuple[Ints, Ints, Ints, Floats]]:
        """By series [N] rows, steps, times and values, in the order in which they came."""
        axes: dict[tuple[int, ...], tuple[Ints, Ints, Ints]] = {}
        found: dict[int, tuple[Ints, Ints, Ints, Floats]] = {}
        for of, (places, parts) in self._series.items():
            key = tuple(places)
            if key not in axes:
                steps = [self._steps[at] for at in places]
                axes[key] = (
                    np.repeat([self._rows[at] for at in places], [len(part) // 8 for part in steps]),
                    np.frombuffer(b"".join(steps), "<i8"),
                    np.frombuffer(b"".join([self._times_us[at] for at in places]), "<i8"),
                )
            found[of] = (*axes[key], np.frombuffer(b"".join(parts), "<f8"))
        return found


class _Series:
    """One series of all ranks."""

    @staticmethod
    def size_bytes(kept: _Kept, num_ranks: int) -> int:
        """Of one of so many ranks, about."""
        return num_ranks * (16 * kept.recent_steps + 12 * MAX_STRETCHES * (kept.stretches and kept.by_rank))

    def __init__(self, kept: _Kept, num_ranks: int, first_step: int) -> None:
        self.kept, self.first_step, self.width = kept, first_step, 1
        self.lowest_step = np.iinfo(np.int64).max
        self.recent_step = np.full((num_ranks, kept.recent_steps), -1, np.int64)
        self.recent_value = np.full((num_ranks, kept.recent_steps), np.nan)
        rows = (num_ranks if kept.by_rank else 1) if kept.stretches else 0
        self.high = np.full((rows, MAX_STRETCHES), np.nan)
        self.bad = np.zeros((rows, MAX_STRETCHES), np.int32)
        self.time_us = np.full(MAX_STRETCHES, np.iinfo(np.int64).max)

    def take(self, row_N: Ints, step_N: Ints, time_us_N: Ints, value_N: Floats) -> None:
        """Values as they came; of a step that comes twice the last counts."""
        self.lowest_step = min(self.lowest_step, int(step_N.min()))
        slot_N = step_N % self.kept.recent_steps
        newer = step_N >= self.recent_step[row_N, slot_N]
        at = row_N[newer], slot_N[newer]
        # Of several values for one place the newest step has to be the last, and of one step the last that came.
        order = np.argsort(step_N[newer], kind="stable")
        at = at[0][order], at[1][order]
        self.recent_step[at], self.recent_value[at] = step_N[newer][order], value_N[newer][order]
        if not self.kept.stretches:
            return
        while int(step_N.max()) - self.first_step >= self.width * MAX_STRETCHES:
            self._widen()
        column_N = (step_N - self.first_step) // self.width
        row_N = row_N if self.kept.by_rank else np.zeros_like(row_N)
        finite = np.isfinite(value_N)
        np.fmax.at(self.high, (row_N[finite], column_N[finite]), value_N[finite])
        np.add.at(self.bad, (row_N[~finite], column_N[~finite]), 1)
        np.minimum.at(self.time_us, column_N, time_us_N)

    def _widen(self) -> None:
        half = MAX_STRETCHES // 2
        with np.errstate(invalid="ignore"):
            self.high[:, :half] = np.fmax(self.high[:, ::2], self.high[:, 1::2])
        self.bad[:, :half] = self.bad[:, ::2] + self.bad[:, 1::2]
        self.time_us[:half] = np.minimum(self.time_us[::2], self.time_us[1::2])
        self.high[:, half:], self.bad[:, half:], self.time_us[half:] = np.nan, 0, np.iinfo(np.int64).max
        self.width *= 2


@dataclass(slots=True, kw_only=True)
class RankTable:
    """One attempt of a job. Reading is for one thread at a time: under `RankTables.lock`."""

    world_size: int
    first_step: int = -1
    rows: dict[int, int] = field(default_factory=dict)
    """Rank to row."""
    taken: dict[str, int] = field(default_factory=dict)
    """Of each stream, the first seq that is not in it; -1: something of it is missing."""
    series: dict[int, _Series] = field(default_factory=dict)
    num_bytes: int = 0
    is_too_large: bool = False
    is_given_up: bool = False

    def covers(self, nexts: Mapping[str, int]) -> bool:
        """Whether it has everything of these streams."""
        return all(self.taken.get(stream, -1) >= number for stream, number in nexts.items())

    def last_steps(self) -> dict[int, int]:
        """The newest step of each rank that has told a step time."""
        found = self.series.get(_PER_STEP)
        if found is None:
            return {}
        last = found.recent_step.max(axis=1).tolist()
        return {rank: last[row] for rank, row in sorted(self.rows.items()) if last[row] >= 0}

    def span(self, of: int) -> tuple[int, int] | None:
        """The first and the last step of a series over all ranks; None: it has none."""
        found = self.series.get(of)
        return None if found is None else (found.lowest_step, int(found.recent_step.max()))

    def keeps(self, of: int) -> bool:
        """Whether a series is among those that are kept."""
        return of in WANTED

    def newest(self, of: int) -> dict[int, float]:
        """The value of each rank's newest step."""
        found = self.series.get(of)
        if found is None:
            return {}
        at = found.recent_step.argmax(axis=1)
        rows = np.arange(at.size)
        steps, values = found.recent_step[rows, at].tolist(), found.recent_value[rows, at].tolist()
        return {rank: values[row] for rank, row in sorted(self.rows.items()) if steps[row] >= 0}

    def medians(self, of: int, num_steps: int, *, last: Mapping[int, int] | None = None) -> dict[int, float]:
        """The median of each rank's finite values in its own last steps.

        Args:
            of: id of a series of which recent values are kept.
            num_steps: at most `RECENT_STEPS`.
            last: each rank's last step; None: the newest one of the series.
        """
        found = self.series.get(of)
        if found is None:
            return {}
        last_R = found.recent_step.max(axis=1)
        for rank, row in self.rows.items() if last is not None else ():
            last_R[row] = (last or {}).get(rank, 0)
        counted = (found.recent_step > last_R[:, None] - num_steps) & (found.recent_step >= 0)
        counted &= np.isfinite(found.recent_value)
        number_R = counted.sum(axis=1)
        ordered = np.sort(np.where(counted, found.recent_value, np.inf), axis=1)
        rows = np.arange(number_R.size)
        low = ordered[rows, np.maximum(number_R - 1, 0) // 2]
        high = ordered[rows, np.minimum(number_R // 2, ordered.shape[1] - 1)]
        middle = np.where(low == high, low, low / 2 + high / 2).tolist()
        return {rank: middle[row] for rank, row in sorted(self.rows.items()) if number_R[row]}

    def stretches(self, of: int) -> Stretches | None:
        """The whole attempt; None: the series has none here."""
        found = self.series.get(of)
        if found is None or not found.kept.stretches:
            return None
        has = found.time_us < np.iinfo(np.int64).max
        ranks = sorted(self.rows)
        rows = [self.rows[rank] for rank in ranks]
        if found.kept.by_rank:
            told = (found.recent_step.max(axis=1) >= 0).tolist()
            ranks, rows = [r for r in ranks if told[self.rows[r]]], [row for row in rows if told[row]]
        else:
            ranks, rows = ranks[:1], [0]
        return Stretches(
            width=found.width,
            ranks=np.array(ranks, np.int64),
            step=found.first_step + np.flatnonzero(has) * found.width,
            time_us=found.time_us[has],
            high=found.high[rows][:, has],
            num_bad=found.bad[rows][:, has].astype(np.int64),
        )

    def take(self, waiting: Sequence[_Waiting]) -> None:
        """Batches in the order in which they were committed."""
        if self.is_too_large or self.is_given_up:
            return
        told = _Told()
        for one in waiting:
            seen = self.taken.get(one.stream)
            if seen is None and one.is_begin:
                self.rows.setdefault(one.rank, len(self.rows))
            elif seen != one.first:
                continue  # there already, or something before it went past this server
            self.taken[one.stream] = one.end_seq
            for points in one.points:
                told.add(points, one.sids, self.rows[one.rank])
        self._take_all(told)

    def fill(self, lacking: Sequence[Lacking]) -> None:
        """What was read of streams, each from where the table ends."""
        told = _Told()
        for one in lacking:
            row = self.rows.setdefault(one.rank, len(self.rows))
            self.taken[one.stream] = one.next
            for values in one.values:
                told.add_values(values, row)
            for points in one.points:
                told.add(points, one.sids, row)
        self._take_all(told)

    def _take_all(self, told: _Told) -> None:
        columns = told.columns()
        if self.first_step < 0:
            self.first_step = min((int(step_N.min()) for _, step_N, _, _ in columns.values()), default=-1)
        for of, column in columns.items():
            self._take_series(of, *column)

    def _give_up(self) -> None:
        self.is_given_up = True
        self.taken = dict.fromkeys(self.taken, -1)
        self.series, self.num_bytes = {}, 0

    def _take_series(self, of: int, row_N: Ints, step_N: Ints, time_us_N: Ints, value_N: Floats) -> None:
        found = self.series.get(of)
        size_bytes = _Series.size_bytes(WANTED[of], self.world_size) if found is None else 0
        # A rank that began before the first does not fit in, nor does a job of too many.
        self.is_too_large |= len(self.rows) > self.world_size or self.num_bytes + size_bytes > MAX_BYTES
        if self.is_given_up or self.is_too_large or int(step_N.min()) < self.first_step:
            self._give_up()
            return
        if found is None:
            found = self.series[of] = _Series(WANTED[of], self.world_size, self.first_step)
            self.num_bytes += size_bytes
        found.take(row_N, step_N, time_us_N, value_N)


@dataclass(slots=True, kw_only=True)
class _Queue:
    """What was committed of an attempt and nobody has asked for yet."""

    world_size: int
    batches: list[_Waiting] = field(default_factory=list)
    num_bytes: int = 0


class RankTables:
    """The tables of the jobs that are running."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by whoever reads a table."""
        self._tables: OrderedDict[tuple[str, int], RankTable] = OrderedDict()
        # Apart: whoever commits must not wait for a reader.
        self._queues_lock = threading.Lock()
        self._queues: dict[tuple[str, int], _Queue] = {}

    def bring(self, state: StreamState, committed: Sequence[Decoded], sids: Mapping[int, int]) -> None:
        """Hand over what was committed of a stream; `state` is the stream as it was before."""
        if state.world_size < 2:
            return
        key = (state.run_id, state.attempt)
        is_new = not state.started
        with self._queues_lock:
            queue = self._queues.get(key)
            if queue is None:
                if not is_new:
                    return
                queue = self._queues[key] = _Queue(world_size=state.world_size)
            queue.world_size = max(queue.world_size, state.world_size)
            queue.batches += [
                _Waiting(
                    rank=state.rank,
                    stream=state.stream,
                    first=decoded.batch.first,
                    end_seq=decoded.end_seq,
                    is_begin=is_new and at == 0,
                    points=decoded.points,
                    sids=sids,
                )
                for at, decoded in enumerate(committed)
            ]
            queue.num_bytes += sum(decoded.points_bytes for decoded in committed)
            is_much = queue.num_bytes > SETTLE_BYTES
            if queue.num_bytes > MAX_WAITING_BYTES:
                del self._queues[key]
        if is_much and self.lock.acquire(blocking=False):
            try:
                self.table(*key)
            finally:
                self.lock.release()

    def expect(self, run_id: str, attempt: int) -> None:
        """From now on what is committed of an attempt is kept for its table."""
        with self._queues_lock:
            self._queues.setdefault((run_id, attempt), _Queue(world_size=0))

    def begun(self, run_id: str, attempt: int, world_size: int, *, anew: bool = False) -> RankTable | None:
        """The table of an attempt, which may be empty; None: it is too large for one.

        Args:
            anew: begin it again.
        """
        key = (run_id, attempt)
        held = self._tables.get(key)
        if held is not None and held.is_too_large:
            return None
        if held is None or held.is_given_up or anew:
            held = self._tables[key] = RankTable(world_size=world_size)
            self._tables.move_to_end(key)
        return held

    def table(self, run_id: str, attempt: int) -> RankTable | None:
        """The table of an attempt as of now; None: there is none. The caller holds the lock while it looks at it."""
        key = (run_id, attempt)
        with self._queues_lock:
            queue = self._queues.get(key)
            if queue is None:
                self._tables.pop(key, None)
                return None
            waiting, queue.batches, queue.num_bytes = queue.batches, [], 0
        table = self._tables.get(key)
        if table is None:
            if not waiting or not waiting[0].is_begin:
                return None
            table = self._tables[key] = RankTable(world_size=queue.world_size)
        self._tables.move_to_end(key)
        table.take(waiting)
        while len(self._tables) > MAX_TABLES or sum(one.num_bytes for one in self._tables.values()) > MAX_BYTES:
            self._give_up(next(iter(self._tables)))
        return self._tables.get(key)

    def forget(self, run_id: str) -> None:
        """Drop what is kept of a run that was deleted."""
        with self.lock:
            for key in [key for key in self._tables.keys() | self._queues.keys() if key[0] == run_id]:
                self._give_up(key)

    def _give_up(self, key: tuple[str, int]) -> None:
        with self._queues_lock:
            self._queues.pop(key, None)
        self._tables.pop(key, None)
