"""Training with DistributedDataParallel is bit for bit what it is unwatched, in each of its modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.distributed import train
from tests.helpers.preloaded import Preloaded

PROGRAM = Path(__file__).with_name("modes.py").read_text()
MODES = (
    "plain", "buckets made anew", "no_sync", "unused parameters", "static graph", "bucket view",
    "bucket view, gradients kept", "bucket view, no_sync", "bucket view, unused parameters", "join",
    "join, divided by who is left", "FP16 parameters", "BF16 parameters", "FP64 parameters", "sparse", "channels last",
    "complex", "complex, bucket view", "scaler", "another group", "watched late", "watched late, bucket view",
    "finished early", "watched twice", "watched on one rank alone", "watched on one rank alone, bucket view",
    "wrapped hook", "wrapped wrapper",
)  # fmt: skip
OF_THREE = (
    "plain", "bucket view, gradients kept", "bucket view, no_sync", "bucket view, unused parameters",
    "join, divided by who is left", "FP16 parameters", "sparse", "complex, bucket view",
    "watched on one rank alone, bucket view", "wrapped hook",
)  # fmt: skip
"""A third is no number of FP32: whether the reducer divides or multiplies shows."""


def trained(python: Preloaded, folder: Path, num_ranks: int, modes: tuple[str, ...]) -> dict[int, dict[str, Any]]:
    job = train(python, folder, PROGRAM, num_ranks=num_ranks, env={"MODES": ";".join(modes)}, timeout_s=150.0)
    return {rank: given["modes"] for rank, given in job.given.items()}


@pytest.fixture(scope="module")
def of_two(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    return trained(python, tmp_path_factory.mktemp("two"), 2, MODES)


@pytest.fixture(scope="module")
def of_three(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    return trained(python, tmp_path_factory.mktemp("three"), 3, OF_THREE)


@pytest.mark.parametrize("mode", MODES)
def test_two_ranks_train_as_unwatched(of_two: dict[int, dict[str, Any]], mode: str) -> None:
    """The same losses and weights bit for bit, the same number of collectives, and nothing of the agent fails."""
    for given in of_two.values():
        assert given[mode]["same"]
        assert given[mode]["watched"] == given[mode]["unwatched"] > 0
        assert given[mode]["failures"] == []


@pytest.mark.parametrize("mode", OF_THREE)
def test_three_ranks_train_as_unwatched(of_three: dict[int, dict[str, Any]], mode: str) -> None:
    """Likewise where dividing by the number of ranks rounds."""
    for given in of_three.values():
        assert given[mode]["same"]
        assert given[mode]["watched"] == given[mode]["unwatched"] > 0
        assert given[mode]["failures"] == []
