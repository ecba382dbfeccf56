"""What is recorded of the gradients of DistributedDataParallel, against what each rank computes in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.helpers.distributed import Job, train
from tests.helpers.preloaded import Preloaded
from tests.helpers.recorded import Recorded

MANY = """
    import contextlib, os
    os.environ.pop("HALFSCOPE_RUN_ID")
    own = {}

    def net():
        torch.manual_seed(0)
        Linear = torch.nn.Linear
        return torch.nn.Sequential(Linear(6, 40), torch.nn.ReLU(), Linear(40, 40), Linear(40, 2))

    def local(inner, batches, scale):
        # The rank's own gradient, by autograd alone, in float64.
        copy = net().double()
        copy.load_state_dict(inner.state_dict())
        for batch in batches:
            (copy(batch.double()).square().mean() * scale).backward()
        return {name: p.grad for name, p in copy.named_parameters()}

    def trained(name, *, scaled=True, every=1, synced=False, hook=None, spoil=None, ddp=None, steps=4, given=None):
        inner = net()
        model = DDP(inner, **(ddp or {"bucket_cap_mb": 0.002}))
        if hook is not None:
            model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000, enabled=scaled)
        watched = inner if given == "inner" else model
        run = halfscope.watch(watched, optimizer, scaler if scaled else None, name=name, every=2)
        own[name] = []
        generator = torch.Generator().manual_seed(rank)
        for step in range(steps):
            optimizer.zero_grad()
            batches = [torch.randn(3, 6, generator=generator) for _ in range(every)]
            scale = scaler.get_scale()
            own[name].append((local(inner, batches, 1.0), scale))
            for at, batch in enumerate(batches):
                is_last = at == every - 1
                with contextlib.nullcontext() if is_last or synced else model.no_sync():
                    loss = model(batch).square().mean()
                    if spoil is not None:
                        loss = spoil(step, at, loss, inner)
                    scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        run.finish()

    import math
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    trained("scaled")
    trained("plain", scaled=False, ddp={})
    trained("no_sync", every=3)
    trained("inner", given="inner")
    handles = []

    def once(step, at, loss, inner, layer=2, when=2):
        for handle in handles:
            handle.remove()
        handles.clear()
        if rank == 1 and step == when and at == 0:
            handles.append(inner[layer].weight.register_hook(lambda grad: torch.full_like(grad, math.inf)))
        return loss

    def huge(step, at, loss, inner):
        return loss * (1e6 if rank == 1 and step == 2 else 1.0)

    trained("overflow", spoil=once)
    trained("always", spoil=lambda *args: once(*args, when=args[0]), steps=24)
    trained("synced", every=2, synced=True)
    trained("synced overflow", every=2, synced=True, spoil=once, steps=5)
    trained("torch's hook", hook=halfscope.wrap_comm_hook(default_hooks.fp16_compress_hook), spoil=huge)
    trained("our hook", hook=halfscope.comm_hooks.fp16_compress, spoil=huge)
    trained("bf16", hook=halfscope.comm_hooks.bf16_compress, spoil=huge)
    trained("torch's hook, overflow", hook=halfscope.wrap_comm_hook(default_hooks.fp16_compress_hook), spoil=once)
    trained("not wrapped", hook=default_hooks.fp16_compress_hook)
    give(own=own)
"""


@pytest.fixture(scope="module")
def job(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return train(python, tmp_path_factory.mktemp("many"), MANY, timeout_s=150.0)


@pytest.fixture(scope="module")
def streams(job: Job) -> dict[str, list[Recorded]]:
    """By name of the run, by rank."""
    return job.by_name


def flat(grads: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([grad.flatten() for grad in grads.values()])


@pytest.mark.parametrize("name", ["scaled", "plain", "no_sync", "inner"])
def test_the_local_norm_is_that_of_the_ranks_own_gradient(
    job: Job, streams: dict[str, list[Recorded]], name: str
) -> None:
    """Before the reduction and without the loss scale, over all micro-batches; the reduced one is another."""
    for rank, recorded in enumerate(streams[name]):
        expected = {at: flat(grads).norm().item() for at, (grads, _) in enumerate(job.given[rank]["own"][name])}
        assert recorded.series("grad.norm_local") == pytest.approx(expected, rel=1e-5)
        assert recorded.series("grad.nonfinite_local") == dict.fromkeys(expected, 0.0)
        assert recorded.series("grad.norm_local") != pytest.approx(recorded.series("grad.norm"), rel=1e-3)
        assert recorded.kinds("rank_origin", "comm_overflow", "agent_degraded") == []


@pytest.mark.parametrize("name", ["scaled", "plain", "no_sync"])
def test_slices_hold_the_same_elements_on_every_rank(job: Job, streams: dict[str, list[Recorded]], name: str) -> None:
    """At sketched steps, of every layer at most 32, strided: the rank's own, scaled, and the mean of all ranks'."""
    own = [job.given[rank]["own"][name] for rank in (0, 1)]
    for rank, recorded in enumerate(streams[name]):
        assert {one.step for one in recorded.slices} == {0, 2}
        for step in (0, 2):
            here = [one for one in recorded.slices if one.step == step]
            layers = [recorded.layers[lid].name for one in here for lid in np.frombuffer(one.lids, "<u4").tolist()]
            assert sorted(layers) == sorted(own[0][0][0])
            for one in here:
                assert (one.divisor, one.ranks) == (2.0, [])
                values = iter(zip(np.frombuffer(one.local, "<f4"), np.frombuffer(one.reduced, "<f4"), strict=True))
                for lid, count in zip(
                    np.frombuffer(one.lids, "<u4").tolist(), np.frombuffer(one.counts, "<u4").tolist(), strict=True
                ):
                    grads = [(each[step][0][recorded.layers[lid].name] * each[step][1]).flatten() for each in own]
                    stride = -(-grads[0].numel() // 32)
                    places = range(0, grads[0].numel(), stride)
                    assert len(places) == count <= 32
                    pairs = [next(values) for _ in places]
                    mean = (grads[0] + grads[1]) / 2
                    assert [pair[0] for pair in pairs] == pytest.approx(
                        [grads[rank][at].item() for at in places], rel=1e-3, abs=1e-4
                    )
                    assert [pair[1] for pair in pairs] == pytest.approx(
                        [mean[at].item() for at in places], rel=1e-3, abs=1e-4
                    )


def test_buckets_are_told_by_one_rank_as_the_reducer_makes_them(streams: dict[str, list[Recorded]]) -> None:
    """Every layer in one bucket, in the order of the backward pass, with sizes, types and bytes."""
    first, second = streams["scaled"]
    assert "buckets" not in second.facts
    buckets = first.facts["buckets"]
    layers = [layer for number in sorted(buckets, key=int) for layer in buckets[number]["layers"]]
    assert layers == [f"{at}.{kind}" for at in (3, 2, 0) for kind in ("bias", "weight")]
    assert len(buckets) > 1
    assert sum(bucket["num_elements"] for bucket in buckets.values()) == 6 * 40 + 40 + 40 * 40 + 40 + 2 * 40 + 2
    for number, bucket in buckets.items():
        sizes = second.series("comm.bytes", bucket=number)
        assert list(sizes.values())[-1] == 4 * bucket["num_elements"]
        assert bucket["dtype"] == "float32"
    assert first.facts["comm_hook"] == {"name": "", "watched": True, "compresses_to": ""}


def test_times_are_within_the_step(streams: dict[str, list[Recorded]]) -> None:
    """Each bucket takes time, the wait is no longer than the longest, and busy and waiting make the step."""
    for recorded in streams["scaled"]:
        step_s, wait_s, busy_s = (recorded.series(name) for name in ("time.step_s", "comm.wait_s", "rank.busy_s"))
        assert list(wait_s) == list(busy_s) == [0, 1, 2, 3]
        for step, whole_s in step_s.items():
            assert wait_s[step] + busy_s[step] == pytest.approx(whole_s)
            buckets_s = [recorded.series("comm.time_s", bucket=number).get(step, 0.0) for number in "01234"]
            assert 0 < wait_s[step] <= sum(buckets_s)


def test_an_overflow_on_one_rank_is_that_ranks_and_that_layers(streams: dict[str, list[Recorded]]) -> None:
    """All ranks skip, as all have the infinite sum; one alone had it before."""
    first, second = streams["overflow"]
    for recorded in (first, second):
        assert recorded.series("amp.skipped")[2] == 1.0
    assert first.kinds("rank_origin", "comm_overflow") == []
    assert first.series("grad.nonfinite_local") == {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}
    assert math.isfinite(first.series("grad.norm_local")[2])
    (origin,) = second.kinds("rank_origin", "comm_overflow")
    assert (origin.step, origin.where, origin.severity) == (2, ["2.weight"], "warning")
    assert second.series("grad.nonfinite_local") == {0: 0.0, 1: 0.0, 2: 1.0, 3: 0.0}
    assert not math.isfinite(second.series("grad.norm_local")[2])


def test_the_same_trouble_at_every_step_is_not_told_for_ever(streams: dict[str, list[Recorded]]) -> None:
    """Sixteen times with its layers; the series goes on."""
    second = streams["always"][1]
    assert [event.step for event in second.kinds("rank_origin")] == list(range(16))
    assert second.series("grad.nonfinite_local") == dict.fromkeys(range(24), 1.0)


@pytest.mark.parametrize("name", ["torch's hook", "our hook", "bf16"])
def test_an_overflow_of_compression_is_told_from_one_of_the_backward(
    streams: dict[str, list[Recorded]], name: str
) -> None:
    """Finite before it and not after: of FP16 on the rank that had the large gradient, and of BF16 on none."""
    first, second = streams[name]
    assert first.kinds("rank_origin", "comm_overflow") == second.kinds("rank_origin") == []
    events = second.kinds("comm_overflow")
    if name == "bf16":
        assert events == []
        assert second.kinds("skip") == first.kinds("skip") == []
        assert second.facts["comm_hook"]["compresses_to"] == "bfloat16"
        return
    (event,) = events
    assert (event.step, event.attributes["dtype"]) == (2, "float16")
    assert "3.weight" in event.where
    assert first.series("amp.skipped")[2] == second.series("amp.skipped")[2] == 1.0
    assert second.series("grad.nonfinite_local")[2] == 0.0
    assert second.facts["comm_hook"]["compresses_to"] == "float16"


def test_an_overflow_of_the_backward_is_not_taken_for_one_of_compression(streams: dict[str, list[Recorded]]) -> None:
    """The same hook, and a gradient that was infinite before it."""
    first, second = streams["torch's hook, overflow"]
    assert first.kinds("rank_origin", "comm_overflow") == []
    (event,) = second.kinds("rank_origin", "comm_overflow")
    assert (event.kind, event.step, event.where) == ("rank_origin", 2, ["2.weight"])


def test_a_gradient_reduced_at_every_micro_batch_is_nobodys_own(streams: dict[str, list[Recorded]]) -> None:
    """From the second on it holds what the first reduction gave: no norm is told, and nothing false."""
    for recorded in streams["synced"]:
        assert recorded.series("grad.norm_local") == {}
        assert recorded.series("grad.nonfinite_local") == dict.fromkeys(range(4), 0.0)
    first, second = streams["synced overflow"]
    assert first.kinds("rank_origin") == []
    assert [event.step for event in second.kinds("rank_origin")] == [2]
    assert first.series("grad.nonfinite_local").get(2, 0.0) == 0.0


def test_a_hook_that_is_not_wrapped_is_said_to_be_unwatched(streams: dict[str, list[Recorded]]) -> None:
    """By its name, once, with no number of what nobody looked at."""
    for recorded in streams["not wrapped"]:
        (event,) = recorded.kinds("comm_hook_unwatched")
        assert event.attributes == {"hook": "fp16_compress_hook", "reason": "not wrapped"}
        assert recorded.facts["comm_hook"]["watched"] is False
        assert not {"grad.norm_local", "comm.wait_s", "rank.busy_s"} & recorded.names()
