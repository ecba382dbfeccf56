"""A run's records as evaluation is given them, cut into updates anywhere.

A stream is a list of steps, each with its events, its sketched layers and its row, in the order in which an agent
writes them: what belongs to a step comes before its row.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from halfscope_server.alerts.evaluator import RunEvaluator
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.types import Column, Update
from halfscope_server.store.types import SERVER_STREAM, EpisodeRow, EventRow, FrameMoments, RunRow, SeriesRow

Labels = tuple[tuple[str, str], ...]

REDUCTIONS = {"loss": "mean", "amp.skipped": "max", "throughput.samples_per_s": "sum", "time.step_s": "max"}


@dataclass(frozen=True)
class Version:
    """A rule's row, as far as evaluation looks at it."""

    rule_id: str
    version: int = 1


@dataclass
class Row:
    """One step of one stream."""

    step: int
    time_us: int
    values: dict[tuple[str, Labels], float] = field(default_factory=dict)
    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """(kind, severity, attributes)"""
    frames: list[tuple[FrameMoments, tuple[str, ...]]] = field(default_factory=list)
    changes: list[tuple[FrameMoments, tuple[str, ...]]] = field(default_factory=list)
    """Of weights; `frames` are of gradients."""


@dataclass
class Records:
    """One stream of a run."""

    rows: list[Row]
    rank: int = 0
    attempt: int = 0
    ended: str = ""
    run_id: str = "run1"

    @property
    def stream(self) -> str:
        return f"{self.attempt:04x}{self.rank:04x}"

    def update(self, first: int, end: int) -> Update:
        """Some of its steps; with the last of them comes how it ended."""
        rows = self.rows[first:end]
        is_last = end >= len(self.rows)
        frames = [frame for row in rows for frame in row.frames]
        changes = [frame for row in rows for frame in row.changes]
        assert len({names for _, names in frames + changes}) <= 1, "one set of layers for each update"
        return Update(
            run_id=self.run_id,
            stream=self.stream,
            attempt=self.attempt,
            rank=self.rank,
            next=end,
            columns=self._columns(rows),
            events=[self._event(row, at, first) for row in rows for at in range(len(row.events))],
            frames=stacked([moments for moments, _ in frames]) if frames else None,
            layer_names=frames[0][1] if frames else (),
            changes=stacked([moments for moments, _ in changes]) if changes else None,
            changed_names=changes[0][1] if changes else (),
            ended=self.ended if is_last else "",
            end_us=rows[-1].time_us + 1 if rows and is_last and self.ended else None,
        )

    def _columns(self, rows: Sequence[Row]) -> list[Column]:
        found: dict[tuple[str, Labels], tuple[list[int], list[int], list[float]]] = {}
        for row in rows:
            for key, value in row.values.items():
                steps, times, values = found.setdefault(key, ([], [], []))
                steps.append(row.step)
                times.append(row.time_us)
                values.append(value)
        return [
            Column(
                series=series_row(name, labels, self.run_id),
                step=np.array(steps, np.int64),
                time_us=np.array(times, np.int64),
                value=np.array(values, np.float64),
            )
            for (name, labels), (steps, times, values) in found.items()
        ]

    def _event(self, row: Row, at: int, seq: int) -> EventRow:
        kind, severity, attributes = row.events[at]
        return EventRow(
            run_id=self.run_id,
            stream=self.stream,
            seq=seq,
            rank=self.rank,
            attempt=self.attempt,
            kind=kind,
            step=row.step,
            time_us=row.time_us,
            severity=severity,
            where=(),
            attributes=attributes,
        )


def series_row(name: str, labels: Labels = (), run_id: str = "run1") -> SeriesRow:
    digest = hashlib.blake2b(repr((name, labels)).encode(), digest_size=7).digest()
    return SeriesRow(
        run_id=run_id,
        series_id=int.from_bytes(digest, "big"),
        name=name,
        labels=dict(labels),
        unit="",
        kind="gauge",
        reduction=REDUCTIONS.get(name, "last"),
    )


def run_row(run_id: str = "run1", **other: Any) -> RunRow:
    values: dict[str, Any] = {
        "run_id": run_id,
        "project": "digits",
        "name": "fp16-digits",
        "state": "live",
        "tags": (),
        "config": {},
        "environment": {},
        "facts": {"precision": "FP16-AMP"},
        "created_us": 0,
        "updated_us": 0,
        "ended_us": None,
        "outcome": "",
        "error_type": "",
        "error_message": "",
        "last_step": None,
        "num_attempts": 1,
        "world_size": 1,
    }
    return RunRow(**{**values, **other})


def server_event(
    kind: str, step: int, *, attempt: int = 0, rank: int = 0, time_us: int = 0, **attributes: Any
) -> Update:
    """Something that the server wrote into the run."""
    event = EventRow(
        run_id="run1",
        stream=SERVER_STREAM,
        seq=step,
        rank=rank,
        attempt=attempt,
        kind=kind,
        step=step,
        time_us=time_us,
        severity="warning",
        where=(),
        attributes=attributes,
    )
    return Update(run_id="run1", stream=SERVER_STREAM, attempt=0, rank=0, next=step + 1, events=[event])


def stacked(frames: Sequence[FrameMoments]) -> FrameMoments:
    """Frames of the same layers as one."""
    names = ("step", "time_us", "rank", "attempt", "scale", "present", "point", "maybe_clipped")
    joined = {name: np.concatenate([getattr(frame, name) for frame in frames]) for name in names}
    columns = {name: np.concatenate([frame.columns[name] for frame in frames]) for name in frames[0].columns}
    return FrameMoments(layer_ids=frames[0].layer_ids, columns=columns, **joined)


def whole(streams: Iterable[Records]) -> list[list[Update]]:
    """Everything at once."""
    return [[records.update(0, len(records.rows)) for records in streams]]


def cut(streams: Sequence[Records], rng: random.Random, *, longest: int = 40) -> list[list[Update]]:
    """Each start after the one before; within it streams cut anywhere and mixed anyhow, but that the first step of each
    comes in the first group."""
    groups: list[list[Update]] = []
    for attempt in sorted({records.attempt for records in streams}):
        own = [records for records in streams if records.attempt == attempt]
        pieces: list[list[Update]] = []
        for records in own:
            edges = [0]
            while edges[-1] < len(records.rows):
                edges.append(min(len(records.rows), edges[-1] + rng.randint(1, longest)))
            pieces.append([records.update(a, b) for a, b in itertools.pairwise(edges)])
        groups.append([parts.pop(0) for parts in pieces])
        while any(pieces):
            parts = rng.choice([parts for parts in pieces if parts])
            if rng.random() < 0.5:
                groups.append([])
            groups[-1].append(parts.pop(0))
    return groups


def evaluate(
    groups: Iterable[Sequence[Update]],
    rules: Sequence[Rule],
    *,
    run: RunRow | None = None,
    restart: random.Random | None = None,
    baseline: float | None = None,
) -> list[EpisodeRow]:
    """All episodes that fired, as they stand at the end.

    Args:
        restart: where given, the evaluation goes on in another process now and then.
    """
    row = run or run_row()
    versions = [(Version(rule.id), rule) for rule in rules]
    evaluator = RunEvaluator(row, versions, baseline=lambda rule: baseline)
    told: dict[str, EpisodeRow] = {}
    for updates in groups:
        told |= {episode.episode_id: episode for episode in evaluator.feed(updates)}
        if restart is not None and restart.random() < 0.3:
            evaluator = RunEvaluator(row, versions, state=evaluator.state(), baseline=lambda rule: baseline)
    told |= {episode.episode_id: episode for episode in evaluator.progress()}
    fired = [episode for episode in told.values() if episode.fired_step is not None]
    return sorted(fired, key=lambda e: (e.rule_id, e.attempt, e.first_step, e.layer, e.rank or 0, str(e.labels)))


def values(rows: Mapping[str, float]) -> dict[tuple[str, Labels], float]:
    """Values of series without labels."""
    return {(name, ()): value for name, value in rows.items()}
