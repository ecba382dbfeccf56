"""The recorder: what the instruments write to, and the one thread that carries it to the journal.

Owns a stream's series numbers, its ring, its journal writer and the journal thread. Must not import torch. Invariant:
nothing here raises into training or makes it wait; what cannot be written is kept as far as memory allows, and
counted and told where it is not.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from halfscope.record.backlog import Backlog
from halfscope.record.errors import StreamBusyError
from halfscope.record.journal import SEGMENT_BYTES, Gap, JournalWriter
from halfscope.record.layout import StreamPlace, make_directory
from halfscope.record.plain import bounded, text
from halfscope.record.ring import MAX_POINTS_PER_RECORD, Block, Ring, Row, expanded, to_points
from halfscope.record.sketches import LayerTable, SketchFrame
from halfscope.wire.codec import encode
from halfscope.wire.messages import Declare, End, Event, Facts, Layer, Layers, Series, Slices, Start, StreamInfo

if TYPE_CHECKING:
    from halfscope.sketch import Sketch

log = logging.getLogger("halfscope")

WRITE_INTERVAL_S = 0.05
"""Half of what a `kill -9` may cost."""
RETRY_INTERVAL_S = 1.0
"""How long to wait after a failed write."""
FINAL_TRIES_S = 0.5
"""How long a journal that cannot be written is tried at the end of a run."""
TEND_INTERVAL_S = 5.0
"""How long a killed sender is missed before the journal thread starts another."""
DEFAULT_QUOTA_BYTES = 1024 * 1024 * 1024
MAX_CONFIG_BYTES = 256 * 1024
MAX_EVENT_BYTES = 64 * 1024
MAX_FACTS_BYTES = 1024 * 1024
"""Names of all parameters travel as a fact; the largest models have tens of thousands."""
SERIES_PER_RECORD = 4096
MAX_SKETCH_BYTES = 64 * 1024 * 1024
"""Sketches in memory that the journal thread has not come to yet; one frame is taken whatever its size."""
MAX_NAMES = 64
"""Most names one event carries in `where`."""


class Recorder:
    """Writes one stream of one run. Every method may be called from any thread, and after `close` does nothing."""

    @classmethod
    def open(
        cls,
        *,
        directory: Path,
        run_id: str,
        stream: str,
        info: StreamInfo,
        start: Start,
        quota_bytes: int = DEFAULT_QUOTA_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
        offline: bool = False,
    ) -> Recorder:
        """Take the stream and start its journal thread.

        A directory that cannot be made or written is no error: records wait in memory, one warning says so, and writing
        begins when it can.

        Args:
            directory: `HALFSCOPE_DIR`; the journal goes to `<run_id>/<stream>` below it.
            run_id: the run, shared by its ranks and attempts.
            stream: this process's own random id.
            info: who writes.
            start: what the run is; configuration and environment are made plain and bounded.
            quota_bytes: what the stream's segments together may take on disk.
            segment_bytes: size of a segment.
            offline: no sender takes this journal by itself; `halfscope sync` does.

        Raises:
            StreamBusyError: another process writes this stream.
            ValueError: ids that are no ids.
        """
        place = StreamPlace(directory=Path(directory), run_id=run_id, stream=stream)
        recorder = cls(place, info, _bounded_start(start), quota_bytes, segment_bytes)
        recorder._offline = offline
        recorder._take_stream()
        recorder._thread.start()
        _open_recorders.add(recorder)
        return recorder

    def __init__(
        self, place: StreamPlace, info: StreamInfo, start: Start, quota_bytes: int, segment_bytes: int
    ) -> None:
        """Use `open`."""
        self.place = place
        self.num_failed_writes = 0
        self.packing_ns = 0
        """Processor time that the journal thread has spent on sketches."""
        self._start = encode(start)
        self._ring = Ring()
        self._backlog = Backlog()
        self._series: list[Series] = []
        self._sids: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        self._sids_lock = threading.Lock()
        self._layers = LayerTable()
        self._num_sketch_bytes_in = self._num_sketch_bytes_out = 0
        """Given to the ring, and taken from it: each is counted by one thread alone."""
        self._num_dropped_sketches = self._num_told_dropped_sketches = 0
        self._journal = JournalWriter(place, info, self._heads, quota_bytes=quota_bytes, segment_bytes=segment_bytes)
        self._offline = False
        self._write_again_at = 0.0
        self._wake = threading.Event()
        self._stopping = False
        self._closed = False
        self.tend: Callable[[], None] | None = None
        """Called by the journal thread every `TEND_INTERVAL_S`; must not raise. Sees that a sender runs."""
        self._tend_at = time.monotonic() + TEND_INTERVAL_S
        self.look: Callable[[float], None] | None = None
        """Called by the journal thread before it writes, with the monotonic clock; must not raise."""
        self._thread = threading.Thread(target=self._run, name="halfscope-journal", daemon=True)

    def declare(
        self,
        name: str,
        *,
        unit: str = "",
        kind: str = "gauge",
        reduction: str = "last",
        labels: Mapping[str, str] | None = None,
    ) -> int:
        """The number of a series, given out once per (name, labels)."""
        key = (name, tuple(sorted((labels or {}).items())))
        sid = self._sids.get(key)
        if sid is not None:
            return sid
        with self._sids_lock:
            sid = self._sids.get(key)
            if sid is None:
                sid = len(self._series)
                series = Series(
                    sid=sid,
                    name=_series_text(name, 200) or "unnamed",
                    unit=text(unit, 50),
                    kind=kind,
                    reduction=reduction,
                    labels={_series_text(label, 100): _series_text(value, 500) for label, value in key[1]},
                )
                self._series.append(series)
                if not self._closed:
                    self._ring.append(Declare(series=[series]))
                self._sids[key] = sid
        return sid

    def row(self, step: int, time_us: int, values: Sequence[tuple[int, float]]) -> None:
        """Numbers of one step. The values are kept as they are: the caller does not change the sequence afterwards."""
        if self._closed:
            return
        if len(values) <= MAX_POINTS_PER_RECORD:
            self._ring.row((step, time_us, values))
        else:  # no record is larger than the wire takes
            for at in range(0, len(values), MAX_POINTS_PER_RECORD):
                self._ring.row((step, time_us, values[at : at + MAX_POINTS_PER_RECORD]))

    def block(
        self, steps: Sequence[int], times_us: Sequence[int], sids: tuple[int, ...], columns: Sequence[Sequence[float]]
    ) -> None:
        """Numbers of several steps, column by column; kept as they are.

        Args:
            steps: ascending, each once.
            sids: each once, and few: with all steps no more than `MAX_POINTS_PER_RECORD` values.
            columns: of each series, one value per step.
        """
        if not self._closed:
            self._ring.block(Block(steps, times_us, sids, columns))

    def layers(self, layers: Sequence[Layer]) -> None:
        """Declares layers; each number (`lid`) once, before the first sketch of it."""
        if self._closed:
            return
        for part in self._layers.add(layers):
            self._ring.append(Layers(layers=part))

    def sketches(
        self,
        step: int,
        time_us: int,
        *,
        point: str,
        clipped: str,
        scale: float,
        lids: Sequence[int],
        sketches: Sketch,
        of: str = "grad",
    ) -> None:
        """Sketches of several layers' tensors at one step.

        They are packed by the journal thread: the caller does not change them afterwards.

        Args:
            scale: the loss scale that the step used; NaN without a scaler.
            lids: the layer of each; those that were not declared are left out.
            sketches: a stack of shape (len(lids),).
            of: what kind of tensor.
        """
        if self._closed:
            return
        frame = SketchFrame(step, time_us, point, clipped, scale, lids, sketches, of)
        waiting = self._num_sketch_bytes_in - self._num_sketch_bytes_out
        if waiting and waiting + frame.num_bytes > MAX_SKETCH_BYTES:
            self._num_dropped_sketches += len(lids)
            return
        self._num_sketch_bytes_in += frame.num_bytes
        self._ring.append(frame)

    def slices(self, slices: Slices) -> None:
        """Some elements of a bucket before and after its reduction; left out where a layer of it was not declared."""
        if self._closed:
            return
        lids = memoryview(slices.lids).cast("I")
        if all(lid in self._layers for lid in lids):
            self._ring.append(slices)

    def event(
        self,
        kind: str,
        step: int,
        *,
        severity: str = "info",
        where: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        time_us: int | None = None,
        urgent: bool = False,
    ) -> None:
        """Something that happened; `urgent` writes it at once instead of within 50 ms."""
        if self._closed:
            return
        self._ring.append(
            Event(
                kind=kind,
                step=int(step),
                time_us=_now_us() if time_us is None else time_us,
                severity=severity,
                where=[text(name, 500) for name in where[:MAX_NAMES]],
                attributes=bounded(attributes or {}, MAX_EVENT_BYTES),
            )
        )
        if urgent:
            self._wake.set()

    def facts(self, facts: Mapping[str, Any]) -> None:
        """What became known about the run."""
        if not self._closed:
            self._ring.append(Facts(time_us=_now_us(), facts=bounded(facts, MAX_FACTS_BYTES)))

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until everything given so far is written.

        Returns:
            False where that could not be done in time.
        """
        if self._closed or not self._thread.is_alive():
            return False
        mark = _Mark()
        self._ring.append(mark)
        self._wake.set()
        return mark.written.wait(timeout_s)

    def close(self, end: End | None, timeout_s: float = 5.0) -> None:
        """Write what is left, then `end` (None leaves the stream without one), and let go of the stream."""
        if self._closed:
            return
        self._closed = True
        if end is not None:
            self._ring.append(msgspec.structs.replace(end, message=text(end.message), error_type=text(end.error_type)))
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        _open_recorders.discard(self)

    def _take_stream(self) -> None:
        try:
            self._open_journal()
        except OSError as error:
            self._note_failure(error)
            return
        if self._journal.num_torn_bytes:
            counts = {"bytes": self._journal.num_torn_bytes}
            self._backlog.append(Gap(reason="torn tail of an earlier process", time_us=_now_us(), counts=counts))

    def _open_journal(self) -> None:
        if self._offline:  # before there is anything that a sender could take
            make_directory(self.place.path)
            self.place.offline_mark.touch(mode=0o600)
        self._journal.open()

    def _heads(self) -> list[bytes]:
        series = list(self._series)
        snapshots = (series[at : at + SERIES_PER_RECORD] for at in range(0, len(series), SERIES_PER_RECORD))
        layers = (encode(Layers(layers=part)) for part in self._layers.snapshot())
        return [self._start, *(encode(Declare(series=part)) for part in snapshots), *layers]

    def _run(self) -> None:
        while True:
            self._wake.wait(WRITE_INTERVAL_S)
            self._wake.clear()
            stopping = self._stopping
            now_s = time.monotonic()
            if self.look is not None and not stopping:
                self.look(now_s)
            self._encode_ring()
            self._write(now_s, final=stopping)
            if stopping:
                self._write_rest()
                break
            if self.tend is not None and now_s >= self._tend_at:
                self._tend_at = now_s + TEND_INTERVAL_S
                self.tend()
        if self._backlog:
            log.warning(
                "halfscope: %d records of run %s could not be written to %s before the end and are lost",
                len(self._backlog), self.place.run_id, self.place.path,
            )  # fmt: skip
        self._journal.close()

    def _encode_ring(self) -> None:
        for item in self._ring.drain():
            if isinstance(item, list):
                self._encode_rows(item)
            elif isinstance(item, _Mark):
                self._backlog.mark(item.written.set)
            elif isinstance(item, SketchFrame):
                self._pack(item)
            elif isinstance(item, Slices):
                self._backlog.append(encode(item), num_sketches=len(item.lids) // 4)
            else:
                assert isinstance(item, Declare | Layers | Event | Facts | End)
                self._backlog.append(encode(item))
        num_sketches = self._num_dropped_sketches - self._num_told_dropped_sketches
        if num_sketches:
            self._num_told_dropped_sketches += num_sketches
            counts = {"sketches": num_sketches}
            self._backlog.append(Gap(reason="memory for sketches full", time_us=_now_us(), counts=counts))
        num_rows, num_points = self._ring.take_dropped()
        if num_rows:
            counts = {"rows": num_rows, "points": num_points}
            self._backlog.append(Gap(reason="memory ring full", time_us=_now_us(), counts=counts))

    def _pack(self, frame: SketchFrame) -> None:
        began_ns = time.thread_time_ns()
        self._num_sketch_bytes_out += frame.num_bytes
        for record in frame.records(self._layers):
            self._backlog.append(encode(record), num_sketches=len(record.lids) // 4)
        self.packing_ns += time.thread_time_ns() - began_ns

    def _encode_rows(self, items: list[Row | Block]) -> None:
        try:
            points = to_points(items)
        except (TypeError, ValueError, OverflowError):
            rows = list(expanded(items))
            if len(rows) > 1:
                for row in rows:  # one of them is bad: only that one is lost
                    self._encode_rows([row])
                return
            counts = {"rows": 1, "points": len(rows[0][2])}
            self._backlog.append(Gap(reason="not numbers", time_us=_now_us(), counts=counts))
            return
        num_points = sum(len(column.values) // 8 for column in points.columns)
        self._backlog.append(encode(points), num_points=num_points)

    def _write(self, now_s: float, *, final: bool) -> None:
        if not self._backlog or (now_s < self._write_again_at and not final):
            return
        try:
            if not self._journal.is_open:
                self._open_journal()
            while self._backlog:
                self._journal.append(self._backlog.head())
                self._backlog.pop_head()
        except (OSError, StreamBusyError) as error:
            self._note_failure(error)
            self._write_again_at = now_s + RETRY_INTERVAL_S
            self._backlog.bound(_now_us())
            return
        if self._write_again_at:
            self._write_again_at = 0.0
            log.warning("halfscope: the journal in %s can be written again", self.place.path)

    def _write_rest(self) -> None:
        """The last chance: one call that failed does not cost the end of a run."""
        deadline_s = time.monotonic() + FINAL_TRIES_S
        while self._backlog and time.monotonic() < deadline_s:
            time.sleep(WRITE_INTERVAL_S)
            self._write(time.monotonic(), final=True)

    def _note_failure(self, error: Exception) -> None:
        self.num_failed_writes += 1
        if self.num_failed_writes == 1:
            log.warning(
                "halfscope: cannot write the journal in %s (%s). Training goes on and the newest records wait in "
                "memory; make room there, or set HALFSCOPE_DIR to a directory that can be written.",
                self.place.path, error,
            )  # fmt: skip

    def _disarm(self) -> None:
        """In a forked child: the stream belongs to the parent, so nothing is recorded here and nothing of it is kept
        open."""
        self._closed = True
        self._sids_lock = threading.Lock()
        self._journal.close()
        self._ring = Ring()
        self._backlog = Backlog()


class _Mark:
    """Goes through the ring behind what was given before, so that `flush` knows when that is written."""

    def __init__(self) -> None:
        self.written = threading.Event()


def _series_text(value: str, max_characters: int) -> str:
    """As servers take it: they refuse NUL, and with the declaration every record that holds the series."""
    return text(value, max_characters).replace("\x00", "\ufffd")


def _bounded_start(start: Start) -> Start:
    return msgspec.structs.replace(
        start,
        project=text(start.project, 200),
        name=text(start.name, 200),
        config=bounded(start.config, MAX_CONFIG_BYTES),
        tags=[text(tag, 200) for tag in start.tags[:MAX_NAMES]],
        environment=bounded(start.environment, MAX_CONFIG_BYTES),
    )


def _now_us() -> int:
    return time.time_ns() // 1000


_open_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _close_all() -> None:
    """A last resort at exit: `finish` has closed its recorder by then."""
    for recorder in list(_open_recorders):
        recorder.close(None)


def _disarm_all() -> None:
    for recorder in list(_open_recorders):
        with contextlib.suppress(OSError):
            recorder._disarm()
    _open_recorders.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disarm_all)
