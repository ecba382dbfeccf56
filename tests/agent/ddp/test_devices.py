"""Reductions on a device, without one: host memory whose numbers arrive steps later, and fake tensors that cannot be
read at all."""

from __future__ import annotations

import functools
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
import torch.distributed as dist
from halfscope.instrument import watcher as watcher_module
from halfscope.instrument.ddp import watching as watching_module
from halfscope.instrument.ddp.reducing import Compression
from halfscope.instrument.ddp.watching import ReducedModel, ReductionWatch
from halfscope.instrument.device import DeviceRing
from halfscope.instrument.rings import Rings
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

from tests.helpers.recorded import read_journal


class Later:
    """An event that is done after it was asked a few times; as a timer it has the host's time."""

    def __init__(self, *_: object, asks: int = 3) -> None:
        self._asks = asks
        self.at_ms = math.nan

    def record(self) -> None:
        self.at_ms = time.perf_counter() * 1e3

    def query(self) -> bool:
        self._asks -= 1
        return self._asks < 0

    def synchronize(self) -> None:
        self._asks = 0

    def elapsed_time(self, end: Later) -> float:
        return end.at_ms - self.at_ms


def late_ring(device: torch.device, width: int) -> DeviceRing:
    return DeviceRing(device, width, 64, pinned=False, make_event=Later, capturing=lambda: False)


@pytest.fixture
def as_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory treated as a device."""
    made = functools.partial(
        Rings, make=late_ring, make_sketcher=lambda *_: None, make_fused=lambda _: None, on_host=lambda _: False
    )
    monkeypatch.setattr(watcher_module, "Rings", made)
    watch = functools.partial(ReductionWatch, make_timer=Later, make_event=Later, pinned=False)
    monkeypatch.setattr(watching_module, "ReductionWatch", watch)


@pytest.mark.parametrize("compression", [None, Compression(dtype=torch.float16)])
def test_numbers_that_arrive_late_are_those_of_their_step(
    alone: None, as_device: None, tmp_path: Path, compression: Compression | None
) -> None:
    """Norms, layers that are not finite, times, slices and what compression would lose, of 12 steps."""
    torch.manual_seed(0)
    inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=1000)
    if compression is not None:
        hook = halfscope.wrap_comm_hook(_plain)
        hook.compression = compression
        model.register_comm_hook(None, hook)
    run = halfscope.watch(model, optimizer, scaler, mode="offline", directory=tmp_path / "journals", every=4)
    expected: dict[int, float] = {}
    own: dict[int, torch.Tensor] = {}
    for step in range(12):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).square().mean() * (1e5 if step == 9 else 1.0)
        scale = scaler.get_scale()
        handle = inner[0].weight.register_hook(lambda grad: torch.full_like(grad, math.nan)) if step == 5 else None
        scaler.scale(loss).backward()
        if handle is not None:
            handle.remove()
        own[step] = torch.cat([p.grad.flatten() for p in reversed(list(model.parameters())) if p.grad is not None])
        expected[step] = (own[step].double() / scale).norm().item()
        scaler.step(optimizer)
        scaler.update()
    run.finish()
    assert run._guard is not None
    assert run._guard.failures == {}
    (recorded,) = read_journal(tmp_path / "journals")
    assert recorded.series("grad.norm_local") == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert recorded.series("grad.nonfinite_local") == {step: float(step == 5) for step in range(12)}
    assert [(event.step, event.where) for event in recorded.kinds("rank_origin")] == [(5, ["0.weight"])]
    lost = [event.step for event in recorded.kinds("comm_overflow")]
    large = [at for at, grads in own.items() if ((grads.abs() >= 65520) & grads.isfinite()).any()]
    assert 9 in large
    assert lost == ([] if compression is None else large)
    assert len(recorded.series("comm.wait_s")) == 12
    assert all(0 < wait_s < 1 for wait_s in recorded.series("comm.time_s", bucket="0").values())
    assert [one.step for one in recorded.slices] == [0, 4, 8]
    for one in recorded.slices[1:]:  # the first bucket is in another order
        local = np.frombuffer(one.local, "<f4")
        assert local.tolist() == np.frombuffer(one.reduced, "<f4").tolist()
        assert np.sort(local).tolist() == np.sort(own[one.step].numpy()).tolist()  # no layer has more than 32


def _plain(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future: Any = dist.all_reduce(bucket.buffer(), async_op=True).get_future()  # type: ignore[union-attr]
    return future.then(lambda done: done.value()[0])  # type: ignore[no-any-return]


_plain.__annotations__.clear()  # texts, which the model takes for other types


class Bucket:
    """One that holds fake tensors, which no reducer takes."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self._parameters = parameters
        self._buffer = torch.empty(sum(map(torch.Tensor.numel, parameters)), device="cuda")

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters


@pytest.mark.parametrize("again", [False, True])
def test_nothing_on_a_device_is_read_while_a_reduction_runs(monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """On fake CUDA tensors every read of a value raises: a sampled bucket with compression is ready and reduced, also
    a second time in one attempt, where the sum is looked at too."""
    monkeypatch.setattr(watching_module, "_current_graph_task", lambda: 1)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [0, 1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with FakeTensorMode():
        parameters: list[torch.Tensor] = [torch.nn.Parameter(torch.empty(40, 5, device="cuda")) for _ in range(3)]
        rings = Rings(
            6,
            make=lambda device, width: DeviceRing(
                device, width, make_event=lambda: Later(asks=10**9), capturing=lambda: False
            ),
            make_fused=lambda _: None,
        )
        attempt = watcher_module.Attempt([], [])
        failures: list[Any] = []
        guard: Any = SimpleNamespace(caught=lambda *found: failures.append(found), hook=lambda *_: None)
        interval: Any = SimpleNamespace(is_due=lambda step: True)
        watch = ReductionWatch({}, {}, interval, guard, make_timer=Later, make_event=Later)
        watch._work = SimpleNamespace(  # type: ignore[assignment]
            rings=rings, clock=SimpleNamespace(step=0), attempt_for_work=lambda: attempt
        )
        model: Any = SimpleNamespace(
            process_group=SimpleNamespace(rank=lambda: 0),
            reducer=None,
            _has_rebuilt_buckets=True,
            _join_config=SimpleNamespace(enable=False),
            parameters=lambda: parameters,
        )
        reduced = ReducedModel(0, "model", model)
        for _ in range(1 + again):
            bucket = Bucket(parameters)
            note = watch._ready(reduced, bucket, Compression(dtype=torch.float16), False)
            assert note is not None
            note.reduced(bucket.buffer() * 1.0)
        assert failures == []
        assert len(attempt.reductions) == 1 + again
        assert len(attempt.sketch_flights) == 1 + again
        assert attempt.reductions[-1].checks_result is again
        with pytest.raises(DataDependentOutputException):
            bucket.buffer().norm().item()
