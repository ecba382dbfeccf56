"""The report of a run's ranks: rows, origins, buckets, and what the judge has found.

Must not decide anything that depends on the clock: the server has asked it once and written down what it found.
Invariant: a report is a function of one view of the run; it reads the last steps alone, whatever came before.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from halfscope_server.query.view import RunView
from halfscope_server.ranks import reading
from halfscope_server.ranks.communication import BucketError, bucket_errors
from halfscope_server.ranks.judgement import Judgement
from halfscope_server.ranks.reading import RankPoints
from halfscope_server.ranks.sentence import sentence
from halfscope_server.ranks.types import Bucket, Origin, RankRow, RanksReport, RankState
from halfscope_server.store.rank_tables import RankTable
from halfscope_server.store.store import Store
from halfscope_server.store.types import SERVER_STREAM, EventRow, StreamRow

RECENT_STEPS = 200
MAX_ORIGINS = 100
MAX_SLICES = 4096
"""Of one step that are read for a report; of larger jobs the judge tells the errors, when it comes to them."""
ORIGINS = ("rank_origin", "comm_overflow")
TIMES = ("time.step_s", "rank.busy_s", "comm.wait_s")
MEMORY = ("memory.device_allocated_bytes", "memory.rss_bytes")
LAYERS_TOLD = 16
_ENDED: Mapping[str, RankState] = {
    "finished": "finished",
    "superseded": "finished",
    "killed": "killed",
    "exception": "exception",
    "lost_contact": "lost_contact",
}


def report(view: RunView, store: Store, judged: Judgement) -> RanksReport:
    """Everything that is said of a run's ranks.

    Args:
        view: the run.
        store: where slices are read.
        judged: of the newest attempt's data, as far as all ranks have come.
    """
    streams = reading.newest_streams(view.streams)
    attempt = max((row.attempt for row in view.streams), default=0)
    rows = _rows(view, store, streams, attempt, judged)
    world_size = max((row.world_size for row in streams.values()), default=1)
    buckets = _buckets(view, store, attempt, world_size, judged)
    counts = view.event_counts
    origins = _origins(view) if any(counts.get(kind) for kind in ORIGINS) else []
    text, role = sentence(rows, judged, origins, buckets, world_size=world_size)
    hook = view.row.facts.get("comm_hook")
    return RanksReport(
        world_size=world_size,
        num_seen=len(streams),
        attempt=attempt,
        sentence=text,
        role=role,
        ranks=tuple(rows),
        agreement=judged.agreement,
        origins=tuple(origins),
        num_origins=_num_origins(view),
        straggler=judged.straggler,
        buckets=tuple(buckets),
        comm_hook=str(hook.get("name", "")) if isinstance(hook, Mapping) else str(hook or ""),
    )


# ---- ranks -----------------------------------------------------------------------------------


def _rows(
    view: RunView, store: Store, streams: Mapping[int, StreamRow], attempt: int, judged: Judgement
) -> list[RankRow]:
    last = dict(judged.last_steps) or _last_steps(view, store, attempt)
    furthest = max(last.values(), default=0)
    medians, memory = _recent(view, store, attempt, last)
    nonfinite, first_nonfinite = _told(view, "rank_origin", attempt)
    skipped, _ = _told(view, "skip", attempt)
    has_scaler = view.has("amp.scale")
    stuck = _stuck(view, attempt, last)
    rows = []
    for rank, row in sorted(streams.items()):
        step_s, wait_s = medians["time.step_s"].get(rank), medians["comm.wait_s"].get(rank)
        rows.append(
            RankRow(
                rank=rank,
                local_rank=row.local_rank,
                host=row.host,
                pid=row.pid,
                mesh=dict(row.mesh),
                attempt=row.attempt,
                state=_ENDED.get(row.ended) or ("stuck" if rank in stuck else "waiting" if stuck else "training"),
                last_step=last.get(rank),
                num_behind=furthest - last[rank] if rank in last else 0,
                step_s=step_s,
                busy_s=medians["rank.busy_s"].get(rank),
                wait_share=min(1.0, wait_s / step_s) if wait_s is not None and step_s else None,
                num_nonfinite=max(nonfinite.get(rank, 0), judged.num_nonfinite.get(rank, 0)),
                first_nonfinite_step=judged.first_nonfinite.get(rank, first_nonfinite.get(rank)),
                num_skipped=skipped.get(rank, 0) if has_scaler else None,
                memory_bytes=memory.get(rank),
            )
        )
    return rows


def _last_steps(view: RunView, store: Store, attempt: int) -> dict[int, int]:
    """The newest step of each rank that has any."""
    with _table(view, store, attempt) as table:
        if table is not None and (last := table.last_steps()):
            return last
    for name in reading.PER_STEP:
        series = reading.first_named(view.series, name)
        if series is None:
            continue
        found = store.rank_extents(view.run_id, series.series_id, attempt=attempt)
        if found:
            return {rank: extent.last_step for rank, extent in found.items()}
    return {}


def _recent(
    view: RunView, store: Store, attempt: int, last: Mapping[int, int]
) -> tuple[dict[str, dict[int, float]], dict[int, float]]:
    """Medians of each rank's own last steps, by series and rank, and the newest memory of each rank."""
    series = {name: row for name in (*TIMES, *MEMORY) if (row := reading.first_named(view.series, name)) is not None}
    if not last:
        return {name: {} for name in TIMES}, {}
    # Of the rank that is last as well: it may be thousands of steps behind.
    with _table(view, store, attempt) as table:
        if table is not None:
            medians = {
                name: table.medians(series[name].series_id, RECENT_STEPS, last=last) if name in series else {}
                for name in TIMES
            }
            kept = [table.newest(series[name].series_id) for name in MEMORY if name in series]
            return medians, dict(ChainMap(*kept))
    first = max(0, min(last.values()) - RECENT_STEPS + 1)
    found = reading.read(store, view.run_id, list(series.values()), attempt=attempt, first_step=first)
    points = {name: found[row.series_id] for name, row in series.items()}
    medians = {name: _medians(points.get(name, {}), last) for name in TIMES}
    memory: dict[int, float] = {}
    for name in reversed(MEMORY):
        memory |= {rank: float(told.value[-1]) for rank, told in points.get(name, {}).items()}
    return medians, memory


def _table(view: RunView, store: Store, attempt: int) -> AbstractContextManager[RankTable | None]:
    """What was kept of the attempt while it was recorded."""
    nexts = {stream.stream: stream.next for stream in view.streams if stream.attempt == attempt}
    return store.rank_table(view.run_id, attempt, nexts)


def _medians(points: Mapping[int, RankPoints], last: Mapping[int, int]) -> dict[int, float]:
    """Of each rank's finite values in its own last steps."""
    values = {
        rank: told.value[np.searchsorted(told.step, last.get(rank, 0) - RECENT_STEPS + 1) :]
        for rank, told in points.items()
    }
    values = {rank: some[np.isfinite(some)] for rank, some in values.items()}
    by_size: dict[int, list[int]] = {}
    for rank, some in values.items():
        by_size.setdefault(some.size, []).append(rank)
    found: dict[int, float] = {}
    for size, ranks in by_size.items():
        if size:
            medians = np.median(np.stack([values[rank] for rank in ranks]), axis=1)
            found |= dict(zip(ranks, medians.tolist(), strict=True))
    return found


def _told(view: RunView, kind: str, attempt: int) -> tuple[dict[int, int], dict[int, int]]:
    """Of each rank in how many steps of an attempt it told an event of a kind, and the first of them."""
    if not view.event_counts.get(kind):
        return {}, {}
    marks = view.marks((kind,))
    here = marks.attempt == attempt
    pairs = np.unique(np.stack((marks.rank[here].astype(np.int64), marks.step[here]), axis=1), axis=0)
    ranks, first, counts = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    steps = pairs[first, 1] if ranks.size else ranks
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True)), dict(
        zip(ranks.tolist(), steps.tolist(), strict=True)
    )


def _stuck(view: RunView, attempt: int, last: Mapping[int, int]) -> set[int]:
    """Ranks of which the server wrote that the others wait for them, and which have made no step since."""
    if not view.event_counts.get("rank_stuck"):
        return set()
    for event in view.store.events(view.run_id, kinds=("rank_stuck",), newest_first=True, limit=1):
        if event.attempt == attempt:
            ranks = [int(rank) for rank in event.attributes.get("ranks", ())]
            return {rank for rank in ranks if last.get(rank, -1) <= int(event.attributes.get("last_step", -1))}
    return set()


# ---- origins and buckets ---------------------------------------------------------------------


def _num_origins(view: RunView) -> int:
    """Steps that began not to be finite somewhere that is known."""
    if not any(view.event_counts.get(kind) for kind in ORIGINS):
        return 0
    marks = view.marks(ORIGINS)
    return len(np.unique(np.stack((marks.attempt.astype(np.int64), marks.step), axis=1), axis=0))


def _origins(view: RunView) -> list[Origin]:
    """Newest first."""
    marks = view.marks(ORIGINS)
    places = np.unique(np.stack((marks.attempt.astype(np.int64), marks.step), axis=1), axis=0)[-MAX_ORIGINS:]
    if not len(places):
        return []
    events = view.store.events(
        view.run_id, kinds=ORIGINS, newest_first=True, limit=MAX_ORIGINS * max(1, len(view.ranks)) * 2
    )
    told: dict[tuple[int, int], list[EventRow]] = {}
    for event in events:
        told.setdefault((event.attempt, event.step), []).append(event)
    wanted = {(int(attempt), int(step)) for attempt, step in places}
    return [_origin(place, told[place]) for place in sorted(told, reverse=True) if place in wanted]


def _origin(place: tuple[int, int], events: Sequence[EventRow]) -> Origin:
    """Where one step began: a rank's own gradient comes before what a hook made of it, and that before the sum."""
    backward = [event for event in events if event.kind == "rank_origin"]
    compression = [event for event in events if event.kind == "comm_overflow" and event.stream != SERVER_STREAM]
    chosen = backward or compression
    layers = dict.fromkeys(name for event in sorted(chosen or events, key=lambda e: e.rank) for name in event.where)
    return Origin(
        attempt=place[0],
        step=place[1],
        kind="backward" if backward else "compression" if compression else "reduction",
        ranks=tuple(sorted({event.rank for event in chosen})),
        layers=tuple(layers)[:LAYERS_TOLD],
    )


def _buckets(view: RunView, store: Store, attempt: int, world_size: int, judged: Judgement) -> list[Bucket]:
    told = view.row.facts.get("buckets")
    known: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    num_bytes, time_s = _by_bucket(view, store, "comm.bytes", attempt), _by_bucket(view, store, "comm.time_s", attempt)
    newest: Sequence[BucketError] | None = judged.errors
    if newest is None and world_size * max(len(num_bytes), len(time_s)) <= MAX_SLICES:
        newest = view.memo(("newest errors", attempt), lambda: _newest_errors(view, store, attempt, world_size))
    errors = {error.bucket: error for error in newest or ()}
    names = {row.layer_id: row.name for row in view.layers.values()}
    numbers = {int(key) for key in known if str(key).isdigit()} | num_bytes.keys() | time_s.keys() | errors.keys()
    return [
        _bucket(number, known.get(str(number)), num_bytes.get(number), time_s.get(number), errors.get(number), names)
        for number in sorted(numbers)
    ]


def _bucket(
    number: int,
    known: Any,
    num_bytes: float | None,
    time_s: float | None,
    error: BucketError | None,
    names: Mapping[int, str],
) -> Bucket:
    fact: Mapping[str, Any] = known if isinstance(known, Mapping) else {}
    return Bucket(
        bucket=number,
        layers=tuple(map(str, fact.get("layers", ()))),
        dtype=str(fact.get("dtype", "")),
        num_bytes=int(num_bytes or 0),
        time_s=time_s,
        bandwidth_bytes_per_s=num_bytes / time_s if num_bytes and time_s else None,
        error=None if error is None else error.error,
        worst_layer="" if error is None else names.get(error.worst_layer_id, ""),
        worst_error=None if error is None else error.worst_error,
    )


def _by_bucket(view: RunView, store: Store, name: str, attempt: int) -> dict[int, float]:
    """By bucket: of a state the newest value, else the median of the last steps on the rank where it is largest."""
    numbered = [(s, int(s.labels["bucket"])) for s in view.named(name) if s.labels.get("bucket", "").isdecimal()]
    found: dict[int, float] = {}
    with _table(view, store, attempt) as table:
        for series, number in numbered:
            of = series.series_id
            if table is not None and table.keeps(of):
                values = table.newest(of) if series.kind == "state" else table.medians(of, RECENT_STEPS)
                found |= {number: max(values.values())} if values else {}
    last = max((a.span.last_step for a in view.attempts if a.number == attempt), default=0)
    for series, number in numbered:
        if number not in found:
            # What is told where it changes may have been told long ago.
            first = 0 if series.kind == "state" else max(0, last - RECENT_STEPS + 1)
            (ranks,) = reading.read(store, view.run_id, [series], attempt=attempt, first_step=first).values()
            if series.kind == "state":
                values = {rank: float(points.value[-1]) for rank, points in ranks.items()}
            else:
                values = _medians(ranks, {rank: int(points.step[-1]) for rank, points in ranks.items()})
            found |= {number: max(values.values())} if values else {}
    return found


def _newest_errors(view: RunView, store: Store, attempt: int, world_size: int) -> list[BucketError]:
    """Of the newest step whose slices have come from all ranks."""
    steps = store.slice_steps(view.run_id, attempt=attempt, limit=3)
    for step in reversed(steps):
        errors = bucket_errors(store.slices(view.run_id, first_step=step, last_step=step, attempt=attempt), world_size)
        if errors:
            return errors
    return []
