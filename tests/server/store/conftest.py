"""Batches as an agent makes them, so that tests can send them twice, late, altered or in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from halfscope.wire.codec import chain, encode, pack_body
from halfscope.wire.messages import (
    GENESIS_DIGEST,
    Batch,
    Column,
    Declare,
    Hello,
    Layer,
    Layers,
    Points,
    Record,
    Series,
    Sketches,
    Start,
    StreamInfo,
    Welcome,
)
from halfscope_server.store.store import Store
from numpy.typing import ArrayLike

RUN = "0123456789abcdef"
STREAM = "00112233aabbccdd"


class Sender:
    """One stream: greets, numbers its records, chains their digests."""

    def __init__(self, run_id: str = RUN, stream: str = STREAM, *, rank: int = 0, attempt: int = 0) -> None:
        self.run_id, self.stream = run_id, stream
        self.info = StreamInfo(rank=rank, world_size=rank + 1, attempt=attempt, host="node1", pid=7, started_us=1)
        self.epoch, self.next, self.digest = 0, 0, GENESIS_DIGEST

    @property
    def key(self) -> tuple[str, str]:
        return self.run_id, self.stream

    def hello(self) -> Hello:
        return Hello(self.run_id, self.stream, self.info)

    def greet(self, store: Store, *, now_us: int = 1) -> Welcome:
        """Greet, and go on where the server says."""
        welcome = store.grant(self.hello(), now_us=now_us)
        assert isinstance(welcome, Welcome)
        self.epoch, self.next, self.digest = welcome.epoch, welcome.next, welcome.digest
        return welcome

    def batch(self, *records: Record, count: int | None = None) -> Batch:
        """The next records as a batch."""
        payloads = [encode(record) for record in records]
        for payload in payloads:
            self.digest = chain(self.digest, payload)
        raw_bytes, body = pack_body(payloads)
        first, size = self.next, len(payloads) if count is None else count
        self.next += size
        return Batch(self.run_id, self.stream, self.epoch, first, size, self.digest, raw_bytes, body)

    def begin(self, *names: str, name: str = "a run") -> Batch:
        """Start and declarations: sid k is the k-th name."""
        return self.batch(
            Start(time_us=1_000, project="digits", name=name),
            Declare([Series(sid, series) for sid, series in enumerate(names)]),
        )


def points(steps: ArrayLike, columns: Mapping[int, ArrayLike], *, times_us: ArrayLike | None = None) -> Points:
    """A record of whole columns; the time of step s is 1000 s unless given."""
    step = np.asarray(steps, "<i8")
    time_us = 1000 * step if times_us is None else np.asarray(times_us, "<i8")
    return Points(
        step.tobytes(),
        time_us.tobytes(),
        [Column(sid, np.asarray(values, "<f8").tobytes()) for sid, values in columns.items()],
    )


@dataclass
class Cell:
    """One sketch, counted one element at a time."""

    bins: dict[int, int] = field(default_factory=dict)
    """Exponent -> elements."""
    others: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Zeros, NaN, +Inf, -Inf."""
    floats: tuple[float, float, float, float] = (0.0, 0.0, 0.0, math.inf)
    """Sum, sum of squares, largest and smallest nonzero magnitude."""

    @classmethod
    def of(cls, values: ArrayLike) -> Cell:
        """The sketch of a tensor."""
        elements = [float(value) for value in np.asarray(values, np.float64).ravel()]
        finite = [value for value in elements if math.isfinite(value)]
        nonzero = [abs(value) for value in finite if value]
        bins: dict[int, int] = {}
        for value in nonzero:
            exponent = math.frexp(value)[1] - 1
            bins[exponent] = bins.get(exponent, 0) + 1
        others = (
            finite.count(0.0),
            sum(map(math.isnan, elements)),
            elements.count(math.inf),
            elements.count(-math.inf),
        )
        floats = (sum(finite), sum(v * v for v in finite), max(nonzero, default=0.0), min(nonzero, default=math.inf))
        return cls(bins, others, floats)

    @property
    def n(self) -> int:
        return sum(self.bins.values()) + sum(self.others)


def sketches(
    step: int,
    cells: Mapping[int, Cell],
    *,
    time_us: int | None = None,
    scale: float = 1024.0,
    point: str = "unscale",
    clipped: str = "no",
    of: str = "grad",
    width: int = 8,
) -> Sketches:
    """A record of some layers, by lid."""
    rows = list(cells.values())
    lowest = [min(cell.bins, default=0) for cell in rows]
    num_bins = [max(cell.bins) - low + 1 if cell.bins else 0 for cell, low in zip(rows, lowest, strict=True)]
    bins = [
        cell.bins.get(low + k, 0) for cell, low, num in zip(rows, lowest, num_bins, strict=True) for k in range(num)
    ]
    return Sketches(
        step=step,
        time_us=1000 * step if time_us is None else time_us,
        point=point,
        clipped=clipped,
        scale=scale,
        lids=np.array(list(cells), "<u4").tobytes(),
        counts=np.array([(cell.n, *cell.others) for cell in rows], "<i8").tobytes(),
        moments=np.array([cell.floats for cell in rows], "<f8").tobytes(),
        lowest=np.array(lowest, "<i2").tobytes(),
        num_bins=np.array(num_bins, "<u2").tobytes(),
        bins=np.array(bins, f"<u{width}").tobytes(),
        width=width,
        of=of,
    )


def layers(*names: str) -> Layers:
    """Declarations: lid k is the k-th name."""
    return Layers([Layer(lid, name, [4, lid + 1], "float32") for lid, name in enumerate(names)])


@pytest.fixture
def make_cell() -> Callable[..., Cell]:
    """Sketches a tensor element by element."""
    return Cell.of


@pytest.fixture
def make_sketches() -> Callable[..., Sketches]:
    """Makes `Sketches` records: step, {lid: cell}."""
    return sketches


@pytest.fixture
def make_layers() -> Callable[..., Layers]:
    """Makes `Layers` records: names."""
    return layers


@pytest.fixture
def make_sender() -> Callable[..., Sender]:
    """Makes streams; each is greeted by the test."""
    return Sender


@pytest.fixture
def make_points() -> Callable[..., Points]:
    """Makes `Points` records of whole columns: steps, {sid: values}."""
    return points


@pytest.fixture
def begun(store: Store) -> Callable[..., Sender]:
    """Makes streams that are greeted and have committed their start and declarations."""

    def begin(names: Sequence[str] = ("loss",), **options: object) -> Sender:
        sender = Sender(**options)  # type: ignore[arg-type]
        sender.greet(store)
        result = store.commit([sender.begin(*names)], now_us=2)
        assert not result.refused
        return sender

    return begin


@pytest.fixture
def value_bits() -> Callable[[ArrayLike], list[int]]:
    """Floats as their bits: equal only where NaN payloads and signed zeros are, too."""
    return lambda values: np.asarray(values, "<f8").view("<i8").tolist()
