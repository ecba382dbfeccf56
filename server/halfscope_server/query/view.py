"""One run as it stood at one moment, read lazily and each thing once.

Owns what all readers of a run share: its series, its extent in steps and time, its skips and non-finite steps, and a
memo for whatever is computed from them. A view belongs to one version vector (the per-stream cursors); `Views` hands
out the newest. Must not import plotly or fastapi. Invariant: a view never changes; data that come later make another
view.
"""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query import skips as skipping
from halfscope_server.query.frames import FrameCache
from halfscope_server.query.memo import Memo
from halfscope_server.query.over_ranks import Tellers, per_step
from halfscope_server.query.strip import APPLIED, LOSS_APPLIED, LOSS_CAUGHT
from halfscope_server.query.window import Span, Window
from halfscope_server.store.bucket_slices import BucketSlice
from halfscope_server.store.rank_tables import RankTable
from halfscope_server.store.types import (
    CAUGHT,
    EventMarks,
    EventRow,
    Extent,
    FrameMoments,
    FrameSketches,
    LayerRow,
    Points,
    Rollup,
    RunRow,
    SeriesRow,
    StreamRow,
)

T = TypeVar("T")

ROLLUP_WIDTH = 64
"""Every rollup width is a multiple of this."""
WIDE_ROLLUP = 4096
REFERENCE_SERIES = ("time.step_s", "amp.scale", "loss", "grad.norm")
"""Series with a value per step, in the order in which they are asked for a run's extent."""
NUM_REFERENCES = 2
"""A series may lack the very first step (a step time has none before it), hardly two."""
BAD_KINDS = ("loss_nonfinite", "nonfinite_applied")
ENDED_STATES = ("finished", "failed", "killed", "superseded")
"""A run in one of these changes only together with its row, whose `updated_us` every commit moves."""
RECENT_SHARE, RECENT_STEPS = 0.1, 200
"""A trouble that is over counts while it lies within the last tenth of the run, or its last 200 steps."""
MAX_STREAKS = 2000
"""Streak events read at most; a run with more of them is one long streak anyway."""


class Reader(Protocol):
    """What a view needs of the store."""

    def get_run(self, run_id: str) -> RunRow | None: ...
    def runs_named(self, project: str, name: str) -> list[RunRow]: ...
    def deleted_run(self, run_id: str) -> tuple[str, int] | None: ...
    def streams(self, run_id: str) -> list[StreamRow]: ...
    def series(self, run_id: str) -> list[SeriesRow]: ...
    def versions(self, run_id: str) -> dict[str, int]: ...
    def count_events(
        self, run_id: str, *, first_step: int | None = None, last_step: int | None = None, rank: int | None = None
    ) -> dict[str, int]: ...
    def event_marks(self, run_id: str, kinds: Any) -> EventMarks: ...
    def events(
        self,
        run_id: str,
        *,
        kinds: Any = None,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        after: tuple[int, int, str, int] | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[EventRow]: ...
    def points(
        self,
        run_id: str,
        series_id: int,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
        stretches: Sequence[tuple[int, int]] = ...,
    ) -> Points: ...
    def extent(
        self, run_id: str, series_id: int, *, rank: int | None = None, attempt: int | None = None
    ) -> Extent | None: ...
    def rollup(
        self,
        run_id: str,
        series_id: int,
        width: int,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
    ) -> Rollup: ...
    def rank_extents(self, run_id: str, series_id: int, *, attempt: int | None = None) -> dict[int, Extent]: ...
    def rank_rollups(
        self,
        run_id: str,
        series_id: int,
        width: int,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        attempt: int | None = None,
    ) -> dict[int, Rollup]: ...
    def layers(self, run_id: str) -> list[LayerRow]: ...
    def layer_parts(self, run_id: str) -> dict[str, dict[int, str]]: ...
    def count_frames(self, run_id: str, *, of: str = ...) -> int: ...
    def frame_moments(
        self,
        run_id: str,
        *,
        layer_ids: Any = None,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
        of: str = ...,
        columns: Sequence[str] = ...,
    ) -> FrameMoments: ...
    def frame_sketches(
        self,
        run_id: str,
        layer_ids: Any,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
    ) -> FrameSketches: ...
    def slice_steps(
        self, run_id: str, *, attempt: int, limit: int, after: int | None = None, upto: int | None = None
    ) -> list[int]: ...
    def slices(
        self,
        run_id: str,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        attempt: int | None = None,
        limit: int = 100_000,
    ) -> list[BucketSlice]: ...
    def rank_table(
        self, run_id: str, attempt: int, nexts: Mapping[str, int]
    ) -> AbstractContextManager[RankTable | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a run: its number and the steps it has."""

    number: int
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Steps of one attempt that stand for the run there, or that a later attempt did again."""

    attempt: int
    span: Span
    is_ghost: bool


class RunView:
    """A run at one version; see the module."""

    def __init__(
        self,
        store: Reader,
        row: RunRow,
        versions: Mapping[str, int],
        memo: Memo | None = None,
        frame_cache: FrameCache | None = None,
    ) -> None:
        self.store = store
        self.row = row
        self.versions = dict(versions)
        self.frame_cache = frame_cache or FrameCache()
        self._memo = memo or Memo()

    @property
    def run_id(self) -> str:
        return self.row.run_id

    def with_row(self, row: RunRow) -> RunView:
        """The same data under a changed row (renamed, other tags, another state)."""
        return RunView(self.store, row, self.versions, self._memo, self.frame_cache)

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` gave for `key` on these data. Must not depend on the row, which may change under the same
        data."""
        return self._memo.get(key, compute)

    # ---- series -----------------------------------------------------------------------------

    @property
    def series(self) -> list[SeriesRow]:
        """Every series, ordered by name and labels."""
        return self.memo(
            "series", lambda: sorted(self.store.series(self.run_id), key=lambda s: (s.name, sorted(s.labels.items())))
        )

    def named(self, name: str) -> list[SeriesRow]:
        """The series of a name, one per set of labels."""
        return [series for series in self.series if series.name == name]

    def has(self, *names: str) -> bool:
        """Whether there is a series of any of these names."""
        return any(series.name in names for series in self.series)

    @property
    def streams(self) -> tuple[StreamRow, ...]:
        """The agents' streams: every rank of every attempt."""

        def read() -> tuple[StreamRow, ...]:
            return tuple(s for s in self.store.streams(self.run_id) if not s.stream.startswith("~"))

        return self.memo("streams", read)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that sent anything, ascending."""
        return tuple(sorted({stream.rank for stream in self.streams}))

    @property
    def layers(self) -> dict[str, LayerRow]:
        """Every layer by its name, in the order of registration."""

        def read() -> dict[str, LayerRow]:
            rows = self.store.layers(self.run_id)
            return {row.name: row for row in sorted(rows, key=lambda row: (row.place, row.name))}

        return self.memo("layers", read)

    @property
    def num_frames(self) -> int:
        """Steps in which layers were sketched, over all attempts and ranks."""
        return self.memo("num_frames", lambda: self.store.count_frames(self.run_id) if self.layers else 0)

    def tail(self, series: SeriesRow, num_steps: int = 200) -> Points:
        """The newest points: those of the last `num_steps` steps of the series (of its newest attempt)."""
        return self.memo(("tail", series.series_id, num_steps), lambda: self._read_tail(series, num_steps))

    def _read_tail(self, series: SeriesRow, num_steps: int) -> Points:
        if not self.attempts:
            return self.store.points(self.run_id, series.series_id)
        newest = self.attempts[-1]
        first = max(newest.span.first_step, newest.span.last_step - num_steps + 1)
        points = self.store.points(self.run_id, series.series_id, first_step=first, attempt=newest.number)
        if points.step.size:
            return points
        # Logged seldom, or no more: find where it ended.
        rollup = self.store.rollup(self.run_id, series.series_id, WIDE_ROLLUP)
        if not rollup.step.size:
            return points
        return self.store.points(self.run_id, series.series_id, first_step=int(rollup.step[-1]))

    def newest(self, series: SeriesRow, num_steps: int = 200) -> NDArray[np.float64]:
        """The newest values in their order, one per step: with several ranks all of them together, at steps that they
        have told."""
        points = self.tail(series, num_steps)
        if len(self.ranks) <= 1:
            return points.value
        key = ("newest", series.series_id, num_steps)
        return self.memo(key, lambda: per_step(points, series.reduction)[1])

    def latest(self, name: str) -> float | None:
        """The newest value of a series of this name, finite or not; with several sets of labels, that of the first."""
        for series in self.named(name):
            value = self.newest(series)
            if value.size:
                return float(value[-1])
        return None

    def recent(self, name: str, num_steps: int = 200) -> NDArray[np.float64]:
        """Finite values of the last steps of the first series of this name."""
        for series in self.named(name):
            value = self.newest(series, num_steps)
            return value[np.isfinite(value)]
        return np.empty(0)

    def tellers(self, series: SeriesRow, attempt: int) -> Tellers:
        """The ranks that a series comes from in an attempt."""

        def read() -> Tellers:
            extents = self.store.rank_extents(self.run_id, series.series_id, attempt=attempt)
            ended = {s.rank for s in self.streams if s.attempt == attempt and s.ended}
            told = [one.last_step for rank, one in extents.items() if rank not in ended]
            told = told or [one.last_step for one in extents.values()]
            is_over = len(ended & extents.keys()) == len(extents)
            return Tellers(num_ranks=len(extents), complete_to=(max if is_over else min)(told, default=-1))

        return self.memo(("tellers", series.series_id, attempt), read)

    def start_number(self, attempt: int) -> int:
        """Which start of the run an attempt is, from 0: numbers of attempts only say which came first."""
        numbers = self.memo("starts", lambda: sorted({stream.attempt for stream in self.streams}))
        return bisect.bisect_left(numbers, attempt)

    # ---- extent -----------------------------------------------------------------------------

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt that has steps, ascending by number."""
        return self.memo("attempts", self._find_attempts)

    @property
    def reference(self) -> list[SeriesRow]:
        """Series that tell which steps a run has: those with a value per step, else whatever there is."""
        chosen = [series for name in REFERENCE_SERIES for series in self.named(name)[:1]]
        if not chosen:
            chosen = [s for s in self.series if s.kind != "state" and not s.name.startswith("memory.")] or self.series
        return chosen[:NUM_REFERENCES]

    def _find_attempts(self) -> tuple[Attempt, ...]:
        numbers = sorted({stream.attempt for stream in self.streams})
        found = []
        for number in numbers:
            ends = self._kept_ends(number)
            if ends is None:
                told = [e for s in self.reference if (e := self.extent(s, number)) is not None]
                ends = [(one.first_step, one.last_step) for one in told]
            if ends:
                span = Span(first_step=min(first for first, _ in ends), last_step=max(last for _, last in ends))
                found.append(Attempt(number=number, span=span))
        return tuple(found)

    def _kept_ends(self, attempt: int) -> list[tuple[int, int]] | None:
        """First and last steps of the reference series of many ranks, without reading them; None: they must be read."""
        nexts = {stream.stream: stream.next for stream in self.streams if stream.attempt == attempt}
        if len(nexts) < 2:
            return None
        with self.store.rank_table(self.run_id, attempt, nexts) as table:
            if table is None or not all(table.keeps(series.series_id) for series in self.reference):
                return None
            return [ends for series in self.reference if (ends := table.span(series.series_id)) is not None]

    def extent(self, series: SeriesRow, attempt: int) -> Extent | None:
        """First and last step, number and maximum of a series' points; None: it has none."""
        return self.memo(
            ("extent", series.series_id, attempt),
            lambda: self.store.extent(self.run_id, series.series_id, attempt=attempt),
        )

    def coverage(self, series: SeriesRow, attempt: int) -> Rollup:
        """Where a series has points and when they were, in stretches of 64 steps."""
        return self.memo(
            ("coverage", series.series_id, attempt),
            lambda: self.store.rollup(self.run_id, series.series_id, ROLLUP_WIDTH, attempt=attempt),
        )

    @property
    def span(self) -> Span | None:
        """First to last step over all attempts; None before the first step."""
        if not self.attempts:
            return None
        return Span(
            first_step=min(a.span.first_step for a in self.attempts),
            last_step=max(a.span.last_step for a in self.attempts),
        )

    @property
    def recent_from(self) -> int:
        """First step that counts as recent; 0 before the first."""
        if not self.attempts:
            return 0
        span = self.attempts[-1].span
        return span.last_step - max(RECENT_STEPS, int(RECENT_SHARE * span.num_steps)) + 1

    @property
    def num_attempted_steps(self) -> int:
        """Steps tried, those that a restart did again counted again."""
        return sum(a.span.num_steps for a in self.attempts)

    @property
    def clock(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Steps and their times at the start of every stretch of 64 steps, ascending by step; where steps were done
        again, the later."""
        return self.memo("clock", self._read_clock)

    def _read_clock(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self.span is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        steps, times = [], []
        for piece in self.pieces(self.span):
            if piece.is_ghost:
                continue
            for series in self.reference[:1]:
                rollup = self.coverage(series, piece.attempt)
                step = np.maximum(rollup.step, piece.span.first_step)
                inside = (rollup.step + ROLLUP_WIDTH > piece.span.first_step) & (rollup.step <= piece.span.last_step)
                steps.append(step[inside])
                times.append(rollup.time_us[inside])
        last = self.newest_time_us
        if last is not None:
            steps.append(np.array([self.span.last_step]))
            times.append(np.array([last]))
        step, time = np.concatenate(steps), np.concatenate(times)
        step, first = np.unique(step, return_index=True)
        return step, time[first]

    @property
    def newest_time_us(self) -> int | None:
        """When the newest step was complete, by the agent's clock."""
        for series in self.reference:
            points = self.tail(series)
            if points.time_us.size:
                return int(points.time_us.max())
        return None

    def pieces(self, span: Span) -> tuple[Piece, ...]:
        """What to draw over `span`: for each attempt the steps that count, and as ghosts those a later attempt did
        again."""
        found: list[Piece] = []
        ahead = None  # first step that a later attempt has
        for attempt in reversed(self.attempts):
            first, last = attempt.span.first_step, attempt.span.last_step
            kept_last = last if ahead is None else min(last, ahead - 1)
            for low, high, is_ghost in ((first, kept_last, False), (max(first, kept_last + 1), last, True)):
                low, high = max(low, span.first_step), min(high, span.last_step)
                if low <= high:
                    found.append(
                        Piece(attempt=attempt.number, span=Span(first_step=low, last_step=high), is_ghost=is_ghost)
                    )
            ahead = first if ahead is None else min(ahead, first)
        return tuple(reversed(found))

    def resolve(self, window: Window) -> Span | None:
        """The steps of a window, cut to those the run has; for a window of time the stretches of 64 steps that touch
        it."""
        whole = self.span
        if whole is None:
            return None
        first, last = window.first, window.last
        if window.x == "time":
            first, last = self._steps_at(first, last)
        low = whole.first_step if first is None else int(np.ceil(min(max(first, whole.first_step), whole.last_step)))
        high = whole.last_step if last is None else int(np.floor(max(min(last, whole.last_step), whole.first_step)))
        return Span(first_step=min(low, high), last_step=max(low, high))

    def _steps_at(self, first_us: float | None, last_us: float | None) -> tuple[float | None, float | None]:
        step, time = self.clock
        if not step.size:
            return None, None
        time = np.maximum.accumulate(time)
        first = None if first_us is None else float(step[max(0, int(np.searchsorted(time, first_us, "right")) - 1)])
        last = None if last_us is None else float(step[min(step.size - 1, int(np.searchsorted(time, last_us, "left")))])
        return first, last

    # ---- what happened ----------------------------------------------------------------------

    @property
    def event_counts(self) -> dict[str, int]:
        """Events of each kind over the whole run."""
        return self.memo("event_counts", lambda: self.store.count_events(self.run_id))

    def marks(self, kinds: tuple[str, ...]) -> EventMarks:
        """Where events of these kinds lie."""
        return self.memo(("marks", kinds), lambda: self.store.event_marks(self.run_id, kinds))

    @property
    def streaks(self) -> tuple[skipping.Streak, ...]:
        """Bad streaks, ascending by attempt and step."""

        def read() -> tuple[skipping.Streak, ...]:
            kinds = ("bad_streak", "bad_streak_end")
            if not any(self.event_counts.get(kind) for kind in kinds):
                return ()
            events = self.store.events(self.run_id, kinds=kinds, limit=MAX_STREAKS)
            return skipping.find_streaks(events, {a.number: a.span.last_step for a in self.attempts})

        return self.memo("streaks", read)

    @property
    def skips(self) -> skipping.StepTable:
        """Skipped steps with their class; classes are places in `skips.SKIP_CLASSES`."""

        def read() -> skipping.StepTable:
            marks = self.marks(("skip",))
            # The store counts from 1 and keeps 0 for a class it does not know.
            return skipping.classify(
                marks.attempt.astype(np.int64), marks.step, marks.skip_class.astype(np.int64) - 1, self.streaks
            )

        return self.memo("skips", read)

    @property
    def bad(self) -> skipping.StepTable:
        """Steps with NaN or Inf in the loss or in what was applied; classes as in `strip`."""

        def read() -> skipping.StepTable:
            marks = self.marks(BAD_KINDS)
            attempt, is_loss = marks.attempt.astype(np.int64), marks.kind == BAD_KINDS.index("loss_nonfinite")
            caught = skipping.member(attempt, marks.step, self.skips) | (marks.skip_class == CAUGHT)
            kind = np.where(is_loss, np.where(caught, LOSS_CAUGHT, LOSS_APPLIED), APPLIED)
            return skipping.step_table(attempt, marks.step, kind)

        return self.memo("bad", read)


class Views:
    """The newest view of each run, kept while its data stay the same."""

    def __init__(self, store: Reader, limit: int = 256) -> None:
        """
        Args:
            limit: runs kept; the one not asked for longest goes first.
        """
        self.store = store
        self._limit = limit
        self._lock = threading.Lock()
        self._views: OrderedDict[str, RunView] = OrderedDict()
        self._frames = FrameCache()

    def get(self, run_id: str, row: RunRow | None = None) -> RunView | None:
        """The run as it is now; None when there is no such run.

        Args:
            row: the run's row, where the caller has just read it.
        """
        with self._lock:
            held = self._views.get(run_id)
        if row is not None and held is not None and held.row == row and row.state in ENDED_STATES:
            return held  # A table of a thousand ended runs asks nothing of the database but their rows.
        versions = self.store.versions(run_id)
        row = row or self.store.get_run(run_id)
        if row is None:
            with self._lock:
                self._views.pop(run_id, None)
            self._frames.drop(run_id)
            return None
        with self._lock:
            view = self._views.get(run_id)
            if view is None or view.versions != versions:
                view = RunView(self.store, row, versions, frame_cache=self._frames)
            elif view.row != row:
                view = view.with_row(row)
            self._views[run_id] = view
            self._views.move_to_end(run_id)
            while len(self._views) > self._limit:
                self._views.popitem(last=False)
        return view
