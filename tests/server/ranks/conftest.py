"""Runs of several ranks, written into a store as their agents would send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from halfscope.wire.messages import Layer, Layers, Slices
from halfscope_server.store.store import Store
from numpy.typing import ArrayLike

from tests.server.conftest import BEGAN_US, STEP_US, RunWriter

Ranks = list[RunWriter]


def slices(step: int, local: ArrayLike, reduced: ArrayLike, *, bucket: int = 0, divisor: float = 2.0) -> Slices:
    """Of one layer, number 0."""
    values = np.asarray(local, "<f4")
    return Slices(
        step=step,
        time_us=BEGAN_US + step * STEP_US,
        bucket=bucket,
        lids=np.zeros(1, "<u4").tobytes(),
        counts=np.array([values.size], "<u4").tobytes(),
        local=values.tobytes(),
        reduced=np.asarray(reduced, "<f4").tobytes(),
        divisor=divisor,
    )


@pytest.fixture
def ranks_of(lite: Store) -> Callable[..., Ranks]:
    """Makes the writers of a run's ranks."""

    def make(
        num_ranks: int = 2,
        *,
        run_id: str = "run1",
        attempt: int = 0,
        layers: Sequence[str] = ("fc.weight",),
        world_size: int | None = None,
    ) -> Ranks:
        writers = [
            RunWriter(lite, run_id, rank=rank, world_size=world_size or num_ranks, attempt=attempt)
            for rank in range(num_ranks)
        ]
        for writer in writers:
            writer.record(Layers([Layer(at, name, [4], "float32") for at, name in enumerate(layers)]))
        return writers

    return make
