"""What a resumed training should have brought along: the states of its optimizers and the scale of its scalers.

Looks once, at each optimizer's first step, because checkpoints are loaded before or after `watch`. Reads no tensor: an
optimizer has no state, or it has; where a scaler began is a number on the host. Must not import the sender. Invariant:
nothing is said of an optimizer that keeps no state, nor of a scaler whose last scale is not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from halfscope.guard import Guard
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler
from halfscope.record.layout import StreamPlace, streams_of
from halfscope.record.reader import JournalReader, read_info
from halfscope.record.recorder import Recorder
from halfscope.wire.codec import decode_record
from halfscope.wire.errors import DecodeError
from halfscope.wire.messages import Declare, Points, Series

EVENT_KIND = "resumed_without_state"
MAX_SEGMENTS = 2
"""Of the earlier journal, the newest: looking for the last scale must not hold up a training's start."""


def earlier_streams(directory: Path, run_id: str, rank: int) -> list[tuple[int, StreamPlace]]:
    """(attempt, place) of what this rank has recorded of a run on this machine, oldest first."""
    found = []
    for place in streams_of(directory, run_id):
        info = read_info(place)
        if info.rank == rank:
            found.append((info.attempt, place))
    return sorted(found, key=lambda pair: pair[0])


def last_scales(place: StreamPlace, before_step: int) -> dict[str, list[float]]:
    """Scaler (empty where there is one only) to what its scale may be when a training goes on at a step: the scale of
    the step before, and what that step's update made of it."""
    firsts = place.segments()[-MAX_SEGMENTS:]
    series: dict[int, Series] = {}
    found: dict[str, dict[str, float]] = {}
    with closing(JournalReader(place, firsts[0] if firsts else 0)) as reader:
        for entry in reader.read(final=True):
            try:
                record = decode_record(entry.payload)
            except DecodeError:
                continue
            if isinstance(record, Declare):
                series.update((one.sid, one) for one in record.series if one.name in ("amp.scale", "amp.scale_next"))
            elif isinstance(record, Points):
                _take_scales(record, series, before_step, found)
    return {scaler: list(scales.values()) for scaler, scales in found.items()}


def _take_scales(
    record: Points, series: dict[int, Series], before_step: int, found: dict[str, dict[str, float]]
) -> None:
    num_rows = len(record.steps) // 8
    steps = struct.unpack(f"<{num_rows}q", record.steps)
    for column in record.columns:
        if column.sid not in series:
            continue
        count = len(column.values) // 8
        values = struct.unpack(f"<{count}d", column.values)
        rows = struct.unpack(f"<{count}I", column.rows) if column.rows else range(num_rows)
        earlier = [value for row, value in zip(rows, values, strict=True) if steps[row] < before_step]
        if earlier:
            one = series[column.sid]
            found.setdefault(one.labels.get("scaler", ""), {})[one.name] = earlier[-1]


class ResumeCheck:
    """Told of each optimizer's first step."""

    def __init__(
        self, recorder: Recorder, scalers: Sequence[WatchedScaler], scales: dict[str, list[float]], *, start_step: int
    ) -> None:
        """
        Args:
            scales: as `last_scales` gives them.
        """
        self._recorder = recorder
        self._scalers = scalers
        self._scales = scales
        self._start_step = start_step
        self._has_looked_at_scalers = False
        self._was_empty: dict[str, bool] = {}
        self._done: set[str] = set()
        self._handles: list[Any] = []

    def attach(self, optimizers: Sequence[WatchedOptimizer], guard: Guard) -> None:
        """Look at the first step of each. The hooks stay until `detach`: torch goes through them while they run."""
        for watched in optimizers:
            name = watched.name

            def before(optimizer: torch.optim.Optimizer, *_: Any, name: str = name) -> None:
                if name not in self._was_empty:
                    self._was_empty[name] = not optimizer.state
                    self._look_at_scalers()

            def after(optimizer: torch.optim.Optimizer, *_: Any, name: str = name) -> None:
                if name not in self._done:
                    self._done.add(name)
                    # Only one that has a state after its first step keeps any.
                    if self._was_empty.get(name) and any(optimizer.state.values()):
                        self._tell([name], {"of": "optimizer"})

            self._handles.append(watched.optimizer.register_step_pre_hook(guard.wrap("resume", before)))
            self._handles.append(watched.optimizer.register_step_post_hook(guard.wrap("resume", after)))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _look_at_scalers(self) -> None:
        if self._has_looked_at_scalers:
            return
        self._has_looked_at_scalers = True
        for watched in self._scalers:
            expected = self._scales.get(watched.labels.get("scaler", ""))
            began = float(watched.scaler._init_scale)  # what `load_state_dict` sets; no device is asked
            if expected and began not in expected:
                self._tell([watched.name], {"of": "scaler", "scale": began, "scale_before": expected[-1]})

    def _tell(self, names: Sequence[str], attributes: dict[str, Any]) -> None:
        self._recorder.event(
            EVENT_KIND, self._start_step, severity="warning", where=names, attributes=attributes, urgent=True
        )
