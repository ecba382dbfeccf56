"""Several models in one run, groups of fewer ranks, ranks that have joined, copies of a watched model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.distributed import Job, train
from tests.helpers.preloaded import Preloaded
from tests.helpers.recorded import Recorded

PROGRAM = """
    import copy, io, os, pickle
    from torch.distributed.optim import _apply_optimizer_in_backward as within_backward
    os.environ.pop("HALFSCOPE_RUN_ID")
    SGD, Scaler = torch.optim.SGD, torch.amp.GradScaler

    def flat(model):
        return torch.cat([p.grad.flatten().double() for p in model.parameters()])

    # Two models, each with an optimizer and a scaler of its own, that train in turn.
    models = [DDP(torch.nn.Linear(3, 2)), DDP(torch.nn.Linear(2, 1))]
    optimizers = [SGD(model.parameters(), 0.01) for model in models]
    scalers = [Scaler("cpu", init_scale=scale, growth_interval=1000) for scale in (64.0, 1024.0)]
    named = lambda items: dict(zip(("one", "two"), items))
    run = halfscope.watch(named(models), named(optimizers), named(scalers), name="two", every=1)
    norms = []
    for step in range(3):
        squares = 0.0
        for model, optimizer, scaler in zip(models, optimizers, scalers):
            optimizer.zero_grad()
            alone = copy.deepcopy(model.module)
            batch = torch.ones(2, alone.in_features) * (rank + 1 + step)
            alone(batch).square().sum().backward()
            squares += float(flat(alone).square().sum())
            scaler.scale(model(batch).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        norms.append(squares ** 0.5)
    run.finish()

    # Ranks 0 and 1 train one model, rank 2 another with nobody.
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    model = DDP(torch.nn.Linear(3, 1), process_group=groups[rank == 2])
    optimizer = SGD(model.parameters(), 0.01)
    run = halfscope.watch(model, optimizer, name="groups", every=1)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 3) * (rank + 1)).sum().backward()
        optimizer.step()

    run.finish()

    # What is copied, or saved as a whole, takes nothing of ours along.
    model = DDP(torch.nn.Linear(3, 1), gradient_as_bucket_view=True)
    optimizer = SGD(model.parameters(), 0.01)
    run = halfscope.watch(model, optimizer, name="copied")
    for step in range(2):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    saved = io.BytesIO()
    torch.save(model, saved)
    is_clean = b"halfscope" not in saved.getvalue()
    twin = copy.deepcopy(model)
    twin(torch.ones(1, 3) * (rank + 1)).sum().backward()
    run.finish()

    # Rank 0 has two batches less than the others.
    model = DDP(torch.nn.Linear(3, 1))
    optimizer = SGD(model.parameters(), 0.01)
    run = halfscope.watch(model, optimizer, name="joined", every=1)
    with model.join():
        for step in range(2 + 2 * (rank > 0)):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    run.finish()

    # What is within a model is given. Another takes its place, and that of the second, which has a hook.
    net = torch.nn.Linear(3, 1)
    optimizer = SGD(net.parameters(), 0.01)
    model = DDP(net)
    run = halfscope.watch(net, optimizer, name="rebuilt", every=1)
    own = []
    for step in range(6):
        if step in (2, 4):
            model = DDP(net)
        if step == 4:
            model.register_comm_hook(None, halfscope.comm_hooks.fp32_accumulate)
        optimizer.zero_grad()
        alone = copy.deepcopy(net)
        alone(torch.ones(1, 3) * (rank + 1)).square().sum().backward()
        own.append(float(flat(alone).norm()))
        model(torch.ones(1, 3) * (rank + 1)).square().sum().backward()
        optimizer.step()
    run.finish()

    # Optimizers within the backward pass: torch registers a hook of its own in the first forward pass.
    net = torch.nn.Linear(3, 1)
    within_backward(SGD, net.parameters(), {"lr": 0.01})
    model = DDP(net)
    run = halfscope.watch(model, SGD([torch.nn.Parameter(torch.zeros(1))], 0.01), name="within")
    model(torch.ones(1, 3))
    num_hooks = len(model._comm_hooks)
    run.finish()

    # The group is destroyed before the run ends, as most scripts do.
    model = DDP(torch.nn.Linear(3, 1))
    run = halfscope.watch(model, SGD(model.parameters(), 0.01), name="left", every=1)
    for optimizer in run._watcher.optimizers:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.optimizer.step()
    give(norms=norms, is_clean=is_clean, twin=twin.module.weight.grad, own=own, num_hooks=num_hooks)
"""


@pytest.fixture(scope="module")
def job(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return train(python, tmp_path_factory.mktemp("models"), PROGRAM, num_ranks=3)


def streams(job: Job, name: str) -> list[Recorded]:
    return [recorded for recorded in job.recorded if recorded.start is not None and recorded.start.name == name]


def test_each_models_scale_is_taken_off_its_own_gradient(job: Job) -> None:
    """Two models under scalers of different scales: one norm over both, and buckets with numbers of their own."""
    for rank, recorded in enumerate(streams(job, "two")):
        assert recorded.series("grad.norm_local") == pytest.approx(dict(enumerate(job.given[rank]["norms"])), rel=1e-5)
        assert recorded.kinds("agent_degraded") == []
        numbers = {one.bucket for one in recorded.slices}
        assert numbers == {0, 1000}
        if rank == 0:
            buckets: dict[str, Any] = recorded.facts["buckets"]
            assert {number: set(bucket["layers"]) for number, bucket in buckets.items()} == {
                "0": {"one.weight", "one.bias"},
                "1000": {"two.weight", "two.bias"},
            }


def test_a_group_of_fewer_ranks_names_them(job: Job) -> None:
    """Who compares slices has to know whose mean it is."""
    for rank, recorded in enumerate(streams(job, "groups")):
        assert {(one.divisor, *one.ranks) for one in recorded.slices} == {(2.0, 0, 1) if rank < 2 else (1.0, 2)}
        local = np.frombuffer(recorded.slices[0].local, "<f4")
        assert sorted(local.tolist()) == sorted([1.0, *[rank + 1.0] * 3])
        assert ("buckets" in recorded.facts) == (rank in (0, 2))


def test_a_copied_or_saved_model_has_nothing_of_ours(job: Job) -> None:
    """It loads where halfscope is not, and its gradients are reduced by torch."""
    for given in job.given.values():
        assert given["is_clean"]
        assert given["twin"].tolist() == [[2.0] * 3]


def test_what_a_joined_rank_sends_for_the_others_is_not_its_own(job: Job) -> None:
    """It has two steps and no more; and while somebody may have joined, elements are not compared."""
    for rank, recorded in enumerate(streams(job, "joined")):
        assert list(recorded.series("grad.norm_local")) == list(range(2 + 2 * (rank > 0)))
        assert recorded.slices == []
        assert recorded.kinds("agent_degraded", "rank_origin") == []


def test_a_model_that_is_wrapped_anew_is_looked_at_in_place_of_the_one_before(job: Job) -> None:
    """At each step the rank's own norm, under the same numbers of buckets; and the hook that the last one has. What all
    hold alike one rank tells, though the model was given without what is around it."""
    for rank, recorded in enumerate(streams(job, "rebuilt")):
        assert recorded.series("grad.norm_local") == pytest.approx(dict(enumerate(job.given[rank]["own"])), rel=1e-5)
        assert {one.bucket for one in recorded.slices} == {0}
        assert recorded.facts["comm_hook"]["name"] == "halfscope.comm_hooks.fp32_accumulate"
        assert recorded.facts["comm_hook"]["watched"]
        assert len(recorded.series("grad.norm")) == len(recorded.frames) == (6 if rank == 0 else 0)
        assert recorded.kinds("agent_degraded") == []


def test_a_hook_that_torch_registers_in_the_first_forward_pass_finds_its_place_free(job: Job) -> None:
    """A model has one hook only: ours in it would end the training."""
    assert [given["num_hooks"] for given in job.given.values()] == [1, 1, 1]


def test_what_is_told_after_the_group_is_gone_needs_none(job: Job) -> None:
    """The run ends with the process, behind `destroy_process_group`, and its last step is told like any other."""
    for rank, recorded in enumerate(streams(job, "left")):
        assert list(recorded.series("grad.norm_local")) == [0]
        assert len(recorded.slices) == 1
        assert ("buckets" in recorded.facts) == (rank == 0)
        assert recorded.kinds("agent_degraded") == []
