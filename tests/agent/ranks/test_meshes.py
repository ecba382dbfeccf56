"""Four ranks on a mesh of two dimensions: what is held alike is told once, what is cut adds up, experts are apart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from halfscope.sketch import merge

from tests.helpers.distributed import Job, train
from tests.helpers.preloaded import Preloaded
from tests.helpers.recorded import Recorded

PROGRAM = Path(__file__).with_name("meshes.py").read_text()
CUT = ("two dimensions", "hybrid")


@pytest.fixture(scope="module")
def job(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return train(python, tmp_path_factory.mktemp("meshes"), PROGRAM, num_ranks=4, timeout_s=150.0)


@pytest.fixture(scope="module")
def streams(job: Job) -> dict[str, list[Recorded]]:
    """By name of the run, by rank."""
    return job.by_name


@pytest.fixture(scope="module")
def given(job: Job) -> dict[int, dict[str, Any]]:
    return job.given


def _told(streams: list[Recorded], step: int, grads: dict[str, torch.Tensor], tellers: list[int]) -> None:
    """Each layer's elements once over all ranks, and the norm of all."""
    for layer, grad in grads.items():
        at = [rank for rank, one in enumerate(streams) if layer in one.frames.get(step, {})]
        assert set(at) <= set(tellers), layer
        merged = merge([streams[rank].frames[step][layer].sketch for rank in at])
        assert int(merged.n) == grad.numel(), layer
        assert float(merged.sumsq) == pytest.approx(float(grad.double().square().sum()), rel=1e-4)
    norm = math.hypot(*(one.series("grad.norm")[step] for one in streams if one.series("grad.norm")))
    assert norm == pytest.approx(math.hypot(*(float(grad.double().norm()) for grad in grads.values())), rel=1e-5)


@pytest.mark.parametrize("name", [*CUT, "experts"])
def test_a_watched_training_is_the_unwatched_one(given: dict[int, dict[str, Any]], name: str) -> None:
    """Losses and weights bit for bit, as many collectives, and nothing of the agent fails."""
    for one in given.values():
        assert (one["found"][name]["same"], one["found"][name]["added"], one["found"][name]["failures"]) == (
            True,
            0,
            [],
        )


@pytest.mark.parametrize("name", CUT)
def test_replicas_of_shards_are_told_once(
    given: dict[int, dict[str, Any]], streams: dict[str, list[Recorded]], name: str
) -> None:
    """Two ranks hold each half: the first two tell theirs, the others, which hold the same, nothing."""
    for step, grads in enumerate(given[0]["whole"]):
        _told(streams[name], step, grads, [0, 1])
    assert [len(one.frames) for one in streams[name]] == [2, 2, 0, 0]


def test_experts_are_told_by_the_rank_that_has_them(
    given: dict[int, dict[str, Any]], streams: dict[str, list[Recorded]]
) -> None:
    """Ranks with other numbers of layers and of elements: the shared layer once, each expert by its rank."""
    names = {rank: {layer.name for layer in one.layers.values()} for rank, one in enumerate(streams["experts"])}
    assert [sum("expert" in name.partition(".")[2] for name in names[rank]) for rank in range(4)] == [2, 4, 2, 4]
    for step in range(2):
        grads = {
            name.replace("shared.module.", "shared."): grad
            for rank in range(4)
            for name, grad in given[rank]["found"]["experts"]["grads"][step].items()
        }
        _told(streams["experts"], step, grads, [0, 1, 2, 3])
        shared = [rank for rank, one in enumerate(streams["experts"]) if "shared.weight" in one.frames[step]]
        assert shared == [0]
