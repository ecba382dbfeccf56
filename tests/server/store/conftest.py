"""Batches as an agent makes them, so that tests can send them twice, late, altered or in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from halfscope.wire.messages import (
    Batch,
    Column,
    Declare,
    Layers,
    Points,
    Series,
    Sketches,
    Start,
    StreamInfo,
    Welcome,
)
from halfscope_server.store.store import Store
from numpy.typing import ArrayLike

from tests.helpers.sketches import Cell, layers, sketches
from tests.helpers.stream import Stream

RUN = "0123456789abcdef"
STREAM = "00112233aabbccdd"


class Sender(Stream):
    """A stream of a rank and an attempt."""

    def __init__(self, run_id: str = RUN, stream: str = STREAM, *, rank: int = 0, attempt: int = 0) -> None:
        info = StreamInfo(rank=rank, world_size=rank + 1, attempt=attempt, host="node1", pid=7, started_us=1)
        super().__init__(run_id, stream, info)

    def greet(self, store: Store, *, now_us: int = 1) -> Welcome:
        """Greet, and go on where the server says."""
        return self.welcomed(store.grant(self.hello(), now_us=now_us))

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
