"""Runs written into a real store over the real wire messages, for every test of what is read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from halfscope.sketch import Sketch, of_array, pack, stack
from halfscope.wire.codec import encode
from halfscope.wire.messages import (
    Column,
    Declare,
    End,
    Event,
    Facts,
    Layer,
    Layers,
    Lost,
    Points,
    Record,
    Series,
    Start,
    StreamInfo,
)
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied, CommitResult
from numpy.typing import ArrayLike

from tests.helpers.killing import MODULES
from tests.helpers.preloaded import Preloaded
from tests.helpers.stream import Stream

BEGAN_US = 1_700_000_000_000_000
STEP_US = 10_000
"""Wall time of a step unless a test says otherwise: 100 steps/s."""
ROWS_PER_RECORD = 20_000


class RunWriter:
    """Writes one stream the way an agent does: records into batches, batches into the store."""

    def __init__(
        self,
        store: Store,
        run_id: str = "run1",
        *,
        rank: int = 0,
        world_size: int = 1,
        attempt: int = 0,
        name: str = "fp16-digits",
        project: str = "digits",
        tags: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
        now_us: int = BEGAN_US,
    ) -> None:
        self.store, self.run_id, self.now_us = store, run_id, now_us
        self._sids: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        self._lids: dict[str, int] = {}
        self.parts: dict[str, str] = {}
        """Layer to the part that this stream has of it, where that is not all; to be set before its first sketch."""
        self._pending: list[bytes] = []
        info = StreamInfo(rank=rank, world_size=world_size, attempt=attempt, host="here", pid=1, started_us=now_us)
        self._sender = Stream(run_id, f"{attempt:08x}{rank:08x}", info)
        self._sender.welcomed(store.grant(self._sender.hello(), now_us=now_us))
        self.record(
            Start(
                time_us=now_us,
                project=project,
                name=name,
                config=dict(config or {}),
                tags=list(tags),
                environment=dict(environment or {}),
            )
        )

    def record(self, record: Record) -> None:
        """Put a record into the next batch."""
        self._pending.append(encode(record))

    def series(self, name: str, *, kind: str = "gauge", unit: str = "", reduction: str = "last", **labels: str) -> int:
        """The sid of a series, declared at its first use."""
        key = (name, tuple(sorted(labels.items())))
        if key not in self._sids:
            self._sids[key] = len(self._sids)
            self.record(Declare([Series(self._sids[key], name, unit, kind, reduction, dict(labels))]))
        return self._sids[key]

    def points(
        self, name: str, steps: ArrayLike, values: ArrayLike, *, times_us: ArrayLike | None = None, **series: str
    ) -> None:
        """Values of one series; commits where a batch would grow too large."""
        self.columns(steps, {self.series(name, **series): values}, times_us=times_us)

    def columns(self, steps: ArrayLike, columns: Mapping[int, ArrayLike], *, times_us: ArrayLike | None = None) -> None:
        """Values of several series, by sid, at the same steps."""
        step = np.asarray(steps, "<i8")
        time_us = BEGAN_US + step * STEP_US if times_us is None else np.asarray(times_us, "<i8")
        value = {sid: np.broadcast_to(np.asarray(v, "<f8"), step.shape) for sid, v in columns.items()}
        for first in range(0, step.size, ROWS_PER_RECORD):
            part = slice(first, first + ROWS_PER_RECORD)
            self.record(
                Points(
                    step[part].tobytes(),
                    time_us[part].astype("<i8").tobytes(),
                    [Column(sid, v[part].tobytes()) for sid, v in value.items()],
                )
            )
            if step.size > ROWS_PER_RECORD:
                self.commit()

    def event(self, kind: str, step: int, severity: str = "info", where: Sequence[str] = (), **attributes: Any) -> None:
        """An event at a step."""
        time_us = BEGAN_US + step * STEP_US
        self.record(Event(kind, step, time_us, severity, list(where), attributes))

    def frame(
        self,
        step: int,
        gradients: Mapping[str, ArrayLike],
        scale: float = np.nan,
        *,
        point: str = "unscale",
        of: str = "grad",
    ) -> None:
        """The sketches of some layers' gradients, or of what else is said, at a step."""
        stacked = stack([of_array(np.asarray(g)) for g in gradients.values()])
        self.sketches(step, list(gradients), stacked, scale, point, of)

    def sketches(
        self,
        step: int,
        names: Sequence[str],
        stacked: Sketch,
        scale: float = np.nan,
        point: str = "unscale",
        of: str = "grad",
    ) -> None:
        """Sketches of layers, which are declared at their first use with their number of elements as their shape."""
        new = [name for name in names if name not in self._lids]
        for name in new:
            self._lids[name] = len(self._lids)
        if new:
            sizes = [[int(stacked.n[list(names).index(name)])] for name in new]
            declared = [
                Layer(self._lids[name], name, size, "float32", self.parts.get(name, ""))
                for name, size in zip(new, sizes, strict=True)
            ]
            self.record(Layers(declared))
        lids = np.array([self._lids[name] for name in names])
        time_us = BEGAN_US + step * STEP_US
        for record in pack(stacked, lids, step=step, time_us=time_us, point=point, clipped="no", scale=scale, of=of):
            self.record(record)

    def skip(self, step: int, kind: str, **attributes: Any) -> None:
        """A skip of a class."""
        self.event("skip", step, "warning" if kind == "streak" else "info", **{"class": kind, **attributes})

    def facts(self, **facts: Any) -> None:
        """Facts about the run."""
        self.record(Facts(self.now_us, facts))

    def lost(self, reason: str = "quota") -> None:
        """A gap in the journal of one seq."""
        seq = self._sender.next + len(self._pending)
        self.record(Lost(seq, seq, reason, self.now_us))

    def end(self, outcome: str = "finished", step: int = 0, error_type: str = "", message: str = "") -> None:
        """The last record."""
        self.record(End(outcome, step, BEGAN_US + step * STEP_US, error_type, message))

    def commit(self, *, now_us: int | None = None) -> list[Applied]:
        """Send what is pending, as one batch."""
        if not self._pending:
            return []
        batch, self._pending = self._sender.batch_of(self._pending), []
        self.now_us = self.now_us + 1000 if now_us is None else now_us
        result: CommitResult = self.store.commit([batch], now_us=self.now_us)
        assert not result.refused, msgspec.to_builtins(result.refused)
        assert result.next[self._sender.key] == self._sender.next
        return list(result.applied)


@pytest.fixture(scope="session")
def forks() -> Iterator[Preloaded]:
    """Runs senders, ingest servers and writers without torch in processes of their own: tests/helpers/killing.py."""
    with Preloaded(MODULES) as preloaded:
        yield preloaded


@pytest.fixture
def lite(sqlite_url: str) -> Iterator[Store]:
    """An empty store on SQLite: for what does not depend on the dialect."""
    opened = Store.open(sqlite_url)
    yield opened
    opened.close()


@pytest.fixture
def write_run(lite: Store) -> Callable[..., RunWriter]:
    """Makes writers of streams into `lite`."""

    def write(run_id: str = "run1", **options: Any) -> RunWriter:
        return RunWriter(lite, run_id, **options)

    return write


@pytest.fixture
def sealed(lite: Store) -> Callable[[], None]:
    """Merges all of `lite` into chunks."""

    def merge() -> None:
        while lite.compact(now_us=BEGAN_US + 10**12, budget_s=5.0):
            pass

    return merge
