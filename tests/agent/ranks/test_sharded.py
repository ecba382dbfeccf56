"""Models that are cut over ranks: what all ranks tell of them together is what one process would have had."""

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
from tests.helpers.sketches import Cell

PROGRAM = Path(__file__).with_name("sharded.py").read_text()
FLAT = ("flat", "flat, original parameters", "flat, not sharded", "flat, overflow")
CUT = (*FLAT, "tensor parallel", "tensor parallel, addends", "pipeline", "watched on rank 0 alone")
ADDENDS = ("2.weight",)
"""Its gradient is a sum over ranks that nobody has added up before the step."""


@pytest.fixture(scope="module")
def job(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return train(python, tmp_path_factory.mktemp("sharded"), PROGRAM, timeout_s=150.0)


@pytest.fixture(scope="module")
def streams(job: Job) -> dict[str, list[Recorded]]:
    """By name of the run, by rank."""
    return job.by_name


def whole(job: Job, name: str) -> list[dict[str, torch.Tensor]]:
    """Gradients of each step by layer, as one process has them."""
    given: dict[str, Any] = job.given[0]
    found: list[dict[str, torch.Tensor]] = given["both" if name.startswith("flat") else "first"]
    return found


@pytest.mark.parametrize("name", CUT)
def test_a_watched_training_is_the_unwatched_one(job: Job, name: str) -> None:
    """Losses and weights bit for bit, as many collectives, and nothing of the agent fails."""
    for given in job.given.values():
        found = given["found"][name]
        assert found["same"]
        assert found["watched"] == found["unwatched"] > 0
        assert found["failures"] == []


@pytest.mark.parametrize(
    "name", ["flat", "flat, original parameters", "flat, not sharded", "tensor parallel", "pipeline"]
)
def test_what_ranks_tell_adds_up_to_the_whole(job: Job, streams: dict[str, list[Recorded]], name: str) -> None:
    """Each layer's counts exactly, in every bin, under its canonical name; and the norm."""
    for step, grads in enumerate(whole(job, name)):
        for layer, grad in grads.items():
            parts = [one.frames[step][layer].sketch for one in streams[name] if layer in one.frames.get(step, {})]
            found, expected = merge(parts), Cell.of(grad.numpy())
            counted = {found.lowest + at: count for at, count in enumerate(found.counts.tolist()) if count}
            if name.startswith("flat"):
                assert counted == expected.bins, (step, layer)
                assert (int(found.zeros), int(found.nonfinite)) == (expected.others[0], 0)
            else:  # added up in another order: an element beside a power of two may be in the next bin
                assert sum(counted.values()) == sum(expected.bins.values())
            assert int(found.n) == grad.numel()
            assert float(found.sumsq) == pytest.approx(float(grad.double().square().sum()), rel=1e-4)
        norm = math.hypot(*(one.series("grad.norm")[step] for one in streams[name] if one.series("grad.norm")))
        expected_norm = torch.cat([grad.flatten() for grad in grads.values()]).double().norm().item()
        assert norm == pytest.approx(expected_norm, rel=1e-5)


@pytest.mark.parametrize("name", FLAT)
def test_flat_parameters_are_told_as_what_is_in_them(job: Job, streams: dict[str, list[Recorded]], name: str) -> None:
    """Names, order and shapes are the model's own, on every rank; sizes count each element once."""
    grads = whole(job, name)[0]
    part = "" if name == "flat, not sharded" else "shard:{rank}/2"
    for rank, recorded in enumerate(streams[name]):
        layers = [(layer.name, tuple(layer.shape), layer.part) for layer in recorded.layers.values()]
        assert layers == [(key, tuple(grad.shape), part.format(rank=rank)) for key, grad in grads.items()]
        assert recorded.info.mesh == ({} if not part else {"shard": [rank, 2]})
        parameters = recorded.facts["parameters"]
        assert parameters["names"] == list(grads)
        assert parameters["num_elements"] == sum(grad.numel() for grad in grads.values())
        assert recorded.facts["optimizers"][0]["num_parameters"] == parameters["num_elements"]
    if name == "flat, not sharded":
        assert streams[name][1].frames == {}


def test_an_overflow_of_one_rank_is_skipped_and_seen_by_all_that_hold_a_part(
    streams: dict[str, list[Recorded]],
) -> None:
    """The sharded scaler withholds the step on both; the scale is halved once, and the norm is no number."""
    for recorded in streams["flat, overflow"]:
        assert [recorded.series("amp.skipped").get(step) for step in (0, 1)] == [0.0, 1.0]
        assert not math.isfinite(recorded.series("grad.norm")[1])
        assert [event.step for event in recorded.kinds("skip")] == [1]
        assert recorded.series("amp.scale")[2] == 512.0


def test_of_dimensions_that_do_not_cut_one_rank_tells(job: Job, streams: dict[str, list[Recorded]]) -> None:
    """Tensor parallel: shards by both, replicas by the first alone; the norm is what clipping gives."""
    first, second = streams["tensor parallel"]
    assert [one.info.mesh for one in (first, second)] == [{"tp": [0, 2]}, {"tp": [1, 2]}]
    assert set(second.frames[0]) == {f"{at}.{name}" for at in (0, 1) for name in ("a.weight", "a.bias", "b.weight")}
    assert set(first.frames[0]) == set(whole(job, "tensor parallel")[0])
    norms = job.given[0]["norms"]["tensor parallel"]
    for step, norm in enumerate(norms):
        assert math.hypot(first.series("grad.norm")[step], second.series("grad.norm")[step]) == pytest.approx(norm)


def test_of_sums_that_are_not_added_up_nothing_is_told(job: Job, streams: dict[str, list[Recorded]]) -> None:
    """The layer has no sketch and the step no norm, on either rank; the other layers are told as ever."""
    for recorded in streams["tensor parallel, addends"]:
        assert recorded.series("grad.norm") == {}
        assert recorded.frames.keys() == {0, 1, 2}
        assert all(layer not in frame for frame in recorded.frames.values() for layer in ADDENDS)
    first = streams["tensor parallel, addends"][0]
    assert set(first.frames[0]) == set(whole(job, "tensor parallel")[0]) - set(ADDENDS)


def test_a_rank_that_is_watched_alone_tells_its_own_part_and_waits_for_nobody(
    streams: dict[str, list[Recorded]],
) -> None:
    """A statistic of a sharded tensor would be a collective, which the other rank never joins."""
    (only,) = streams["watched on rank 0 alone"]
    assert only.info.rank == 0
    for step in range(3):
        parts = [one.sketch for one in only.frames[step].values()]
        assert only.series("grad.norm")[step] == pytest.approx(math.sqrt(sum(float(part.sumsq) for part in parts)))


def test_each_stage_of_a_pipeline_tells_its_own_layers_and_the_last_the_loss(
    streams: dict[str, list[Recorded]],
) -> None:
    """Under one model's names."""
    first, second = streams["pipeline"]
    assert [one.info.mesh for one in (first, second)] == [{"pp": [0, 2]}, {"pp": [1, 2]}]
    assert {layer.name.split(".")[0] for layer in first.layers.values()} == {"0"}
    assert {layer.name.split(".")[0] for layer in second.layers.values()} == {"1", "2"}
    assert first.series("loss") == {}
    assert list(second.series("loss")) == [0, 1, 2]
    assert first.steps() == second.steps() == [0, 1, 2]
