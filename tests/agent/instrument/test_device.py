"""Numbers from a device, without waiting for it.

Two proofs, as no GPU is at hand: on fake CUDA tensors every read of a value raises, so hooks that run without an error
read none; and on host memory treated as a device, with events done only later, the numbers must come out right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from halfscope.instrument import watcher as watcher_module
from halfscope.instrument.attempt import host
from halfscope.instrument.device import DeviceRing, Slot
from halfscope.instrument.rings import Rings
from halfscope.probes import gradients
from halfscope.probes.device_sketches import DeviceSketcher
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from tests.helpers.kernels import interpreted

Net = Callable[[], torch.nn.Sequential]


class Later:
    """An event that is done after it was asked a few times, like a device that lags behind."""

    waited = 0

    def __init__(self, asks: int = 3) -> None:
        self._asks = asks

    def record(self) -> None: ...

    def query(self) -> bool:
        self._asks -= 1
        return self._asks < 0

    def synchronize(self) -> None:
        Later.waited += 1
        self._asks = 0


def late_ring(device: torch.device, width: int, depth: int = 64) -> DeviceRing:
    return DeviceRing(device, width, depth, pinned=False, make_event=Later, capturing=lambda: False)


def late_sketcher(device: torch.device, num_elements: Sequence[int], has_double: bool, fused: Any) -> DeviceSketcher:
    return DeviceSketcher(
        device, num_elements, has_double=has_double, pinned=False, make_event=Later, capturing=lambda: False
    )


# ---- the ring ---------------------------------------------------------------------------------------


def test_values_come_back_in_the_order_they_were_put() -> None:
    """Scalars and vectors, of any type, bit for bit where float64 holds them."""
    ring = late_ring(torch.device("cpu"), 8)
    first = ring.put(torch.tensor(65536.0))
    second = ring.put(torch.tensor([math.inf, math.nan, 1e-300], dtype=torch.float64))
    third = ring.put(torch.tensor(7, dtype=torch.int32))
    flight = ring.seal()
    assert first
    assert second
    assert third
    assert flight
    assert [flight.event.query() for _ in range(4)] == [False, False, False, True]
    assert first.read() == [65536.0]
    assert second.read()[0] == math.inf
    assert math.isnan(second.read()[1])
    assert second.read()[2] == 1e-300
    assert third.read() == [7.0]


def test_a_later_change_of_the_source_does_not_change_what_was_put() -> None:
    """`update` adds flags into each other and clears them: the ring holds a copy."""
    ring = late_ring(torch.device("cpu"), 4)
    flag = torch.zeros(())
    slot = ring.put(flag)
    flag.add_(1.0)
    ring.seal()
    assert slot
    assert slot.read() == [0.0]


def test_a_host_too_far_ahead_leaves_values_out_and_counts_them() -> None:
    """Waiting is no option, and neither is overwriting what was not read."""
    ring = late_ring(torch.device("cpu"), 2, depth=2)
    flights = []
    for step in range(2):
        assert ring.put(torch.tensor(float(step))) is not None
        flights.append(ring.seal())
    assert ring.put(torch.tensor(2.0)) is None
    assert ring.num_dropped == 1
    flights[0].land()
    assert ring.put(torch.tensor(3.0)) is not None


def test_a_full_row_takes_no_more() -> None:
    """A value that finds no room is not available."""
    ring = late_ring(torch.device("cpu"), 2)
    assert ring.put(torch.ones(3)) is None
    assert ring.put(torch.ones(2)) is not None
    assert ring.put(torch.ones(1)) is None
    assert ring.num_dropped == 4


def test_nothing_happens_while_a_graph_is_captured() -> None:
    """Neither a put nor a copy to the host would be right in a replay."""
    ring = DeviceRing(torch.device("cpu"), 2, pinned=False, make_event=Later, capturing=lambda: True)
    assert ring.put(torch.ones(1)) is None
    assert ring.seal() is None
    assert ring.num_dropped == 0


def test_a_row_that_ends_while_a_graph_is_captured_is_sent_afterwards() -> None:
    """What was put before the capture began is neither lost nor read before it has come."""
    capturing = False
    ring = DeviceRing(torch.device("cpu"), 4, pinned=False, make_event=Later, capturing=lambda: capturing)
    slot = ring.put(torch.tensor(5.0))
    capturing = True
    flight = ring.seal()
    assert slot is not None
    assert flight is not None
    assert not flight.event.query()
    assert ring.host.sum() == 0.0
    capturing = False
    ring.put(torch.tensor(6.0))
    assert [flight.event.query() for _ in range(4)] == [False, False, False, True]
    assert slot.read() == [5.0]


def test_numbers_that_were_read_outlive_their_row() -> None:
    """The next attempt may ask for the scale that the last one left, when the row is another's already."""
    ring = late_ring(torch.device("cpu"), 2, depth=1)
    slot = ring.put(torch.tensor(3.0))
    flight = ring.seal()
    assert slot is not None
    assert flight is not None
    assert slot.read() == [3.0]
    flight.land()
    again = ring.put(torch.tensor(4.0))
    ring.seal()
    assert again is not None
    assert (slot.read(), again.read()) == ([3.0], [4.0])


def later_rings() -> Rings:
    return Rings(1, make=late_ring, on_host=lambda tensor: False)


def test_what_is_asked_for_together_is_as_it_was_when_queued() -> None:
    """A flag and a scale, of any types and shapes, before `update` changes both."""
    rings = later_rings()
    flag, tracker, scale = torch.zeros(1), torch.tensor(3, dtype=torch.int32), torch.tensor(2.0)
    slots = [rings.later(each) for each in (flag, tracker, scale)]
    rings.flush()
    for each in (flag, tracker, scale):
        each.add_(1)
    rings.seal()
    assert [host(slot) for slot in slots] == [0.0, 3.0, 2.0]


def test_a_scale_is_copied_again_only_when_somebody_changed_it() -> None:
    """The same number within a step and at the beginning of the next; another after an update or a new tensor."""
    rings = later_rings()
    scale = torch.tensor(2.0)
    first = rings.later(scale)
    rings.flush()
    (flight,) = rings.seal()
    assert host(first) == 2.0
    flight.land()
    assert rings.later(scale) is first
    assert rings.used  # the attempt is one that waits for its numbers, though none of them is new
    assert rings.seal() == []
    scale.mul_(2.0)
    second = rings.later(scale)
    third = rings.later(torch.tensor(8.0))
    rings.flush()
    rings.seal()
    assert [host(slot) for slot in (first, second, third)] == [2.0, 4.0, 8.0]


def test_a_device_without_a_ring_gives_no_values() -> None:
    """Not available, instead of a read that waits."""
    rings = Rings(4, make=lambda device, width: None, on_host=lambda tensor: False)
    assert rings.value(torch.ones(1)) is None
    assert rings.seal() == []


# ---- no read on the training's path -----------------------------------------------------------------


@pytest.mark.parametrize("reads", [torch.Tensor.item, torch.Tensor.tolist, bool, float])
def test_a_read_on_a_fake_device_would_be_caught(reads: Any) -> None:
    """The proof below can fail."""
    with FakeTensorMode(), pytest.raises((DataDependentOutputException, RuntimeError)):
        reads(torch.ones((), device="cuda"))


def fake_ring(device: torch.device, width: int) -> DeviceRing:
    return DeviceRing(device, width, pinned=True, make_event=lambda: Later(10**9), capturing=lambda: False)


def fake_sketcher(device: torch.device, num_elements: Sequence[int], has_double: bool, fused: Any) -> DeviceSketcher:
    return DeviceSketcher(
        device, num_elements, has_double=has_double, make_event=lambda: Later(10**9), capturing=lambda: False
    )


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTensorMode]:
    """A CPU build that takes fake CUDA tensors through GradScaler and our hooks."""
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr("torch.amp.grad_scaler.GradScaler.is_enabled", lambda self: True)
    monkeypatch.setattr(
        watcher_module, "Rings", lambda num_layers: Rings(num_layers, make=fake_ring, make_sketcher=fake_sketcher)
    )
    monkeypatch.setattr("halfscope.instrument.environment.device", lambda found: {"type": found.type})
    monkeypatch.setattr("halfscope.instrument.precision.uses_tf32", lambda found: False)
    with FakeTensorMode() as mode:
        yield mode


@pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled")
@pytest.mark.filterwarnings("ignore:.*GradScaler is enabled, but CUDA is not available")
@pytest.mark.parametrize("clipped", [False, True])
def test_a_watched_amp_step_on_a_device_reads_nothing(watching: Any, fake_cuda: Any, clipped: bool) -> None:
    """Fused AdamW under a scaler: unscale, clip, step, update, loss and log, 70 steps, more than the ring is deep."""
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.empty(4, 4, device="cuda"))
    model.bias = torch.nn.Parameter(torch.empty(4, device="cuda"))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    scaler._enabled = True
    # Fake tensors cost a hundred times what real ones do: the usual interval has to be affordable.
    run = watching(model, optimizer, scaler, budget_share=1.0)
    for _ in range(70):
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
        scaler.scale(torch.empty((), device="cuda"))
        if clipped:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        run.step(loss=torch.empty((), device="cuda"))
        run.log(metric=torch.empty((), device="cuda"))
    assert run._guard.failures == {}
    assert run._watcher.rings.num_dropped > 0
    assert run._watcher.sketches._told_every == 50
    first = run._watcher.closed._queue[0].optimizers[0].reading
    assert first.update is not None, "what the step changed was looked at without waiting"
    assert len(run._watcher.closed) == 69


def test_a_watched_plain_step_on_a_device_reads_nothing(watching: Any, fake_cuda: Any) -> None:
    """No scaler: clipping seen, learning rate a tensor on the device, norms captured."""
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.empty(4, 4, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=True)
    run = watching(model, optimizer)
    for clipped in (True, False, True):
        model.weight.grad = torch.empty(4, 4, device="cuda")
        if clipped:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        run.step(loss=torch.empty((), device="cuda"), samples=4)
    assert run._guard.failures == {}


def test_capture_keeps_kinds_it_cannot_read_without_waiting_out() -> None:
    """Coalescing a sparse gradient waits for the device: its norm is not available."""
    with FakeTensorMode():
        grad = torch.empty(3, device="cuda")
        assert gradients.capture([grad, grad]) is not None
        integer = torch.empty(3, device="cuda", dtype=torch.int32)
        assert gradients.capture([grad, integer]) is None


# ---- right numbers, later ---------------------------------------------------------------------------


@pytest.fixture
def as_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory treated as a device whose values arrive steps later."""
    monkeypatch.setattr(
        watcher_module,
        "Rings",
        lambda num_layers: Rings(num_layers, make=late_ring, make_sketcher=late_sketcher, on_host=lambda tensor: False),
    )


@pytest.mark.parametrize("kind", ["unfused", "fused"])
@pytest.mark.parametrize("clipped", [False, True])
def test_late_values_give_the_same_record(watching: Any, net: Net, as_device: None, kind: str, clipped: bool) -> None:
    """Scale, skips, steps, norms, losses and events of 60 steps with overflows, each at its own step."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **({"fused": True} if kind == "fused" else {}))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=8)
    run = watching(model, optimizer, scaler)
    total = math.fsum(element for parameter in model.parameters() for element in parameter.flatten().tolist())
    scales, nexts, trackers, skipped, norms, handed, applied = [], [], [], [], [], {}, []
    for step in range(60):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(3, 4)).pow(2).mean()).backward()
        if step in (7, 20, 21, 22, 50):
            model[2].weight.grad[0, 1] = math.nan
        scales.append(scaler.get_scale())
        grads = [p.grad.double() / scales[-1] for p in model.parameters()]
        norms.append(torch.cat([grad.flatten() for grad in grads]).norm().item())
        skipped.append(float(step in (7, 20, 21, 22, 50)))
        if clipped:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            if not skipped[-1]:
                handed[step] = torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm().item()
        scaler.step(optimizer)
        scaler.update()
        nexts.append(scaler.get_scale())
        trackers.append(float(scaler._get_growth_tracker()))
        applied.append(step + 1 - sum(skipped))
        run.step(loss=torch.tensor(float(step)))
        run.log(metric=torch.tensor(step / 2))
    recorded = watching.read()
    assert recorded.kinds("agent_degraded") == []
    assert list(recorded.series("amp.scale").values()) == scales
    assert list(recorded.series("amp.scale_next").values()) == nexts
    assert list(recorded.series("amp.growth_tracker").values()) == trackers
    assert list(recorded.series("amp.skipped").values()) == skipped
    assert list(recorded.series("opt.steps").values()) == applied
    assert recorded.series("loss") == {step: float(step) for step in range(60)}
    assert recorded.series("metric") == {step: step / 2 for step in range(60)}
    found = recorded.series("grad.norm")
    for step, expected in enumerate(norms):
        assert math.isclose(found[step], expected, rel_tol=1e-6) or (math.isnan(found[step]) and math.isnan(expected))
    clipped_norms = recorded.series("grad.norm_clipped")
    assert clipped_norms.keys() == handed.keys()
    assert all(math.isclose(clipped_norms[step], norm, rel_tol=1e-6) for step, norm in handed.items())
    skips = recorded.kinds("skip")
    assert [(skip.step, skip.attributes["nonfinite"]) for skip in skips] == [
        (step, ["2.weight"]) for step in (7, 20, 21, 22, 50)
    ]
    assert {event.step for event in recorded.kinds("scale_backoff")} == {7, 20, 21, 22, 50}
    assert recorded.facts["weights"]["sum"] == pytest.approx(total, rel=1e-12)  # as they were at `watch`


def test_kernels_read_what_stock_operations_would(watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms before and behind clipping, non-finite layers and sketches of a few steps, as the watcher wires them up."""
    monkeypatch.setattr(
        watcher_module,
        "Rings",
        lambda num_layers: Rings(
            num_layers,
            make=late_ring,
            make_sketcher=lambda *args: DeviceSketcher(
                args[0], args[1], fused=args[3], pinned=False, make_event=Later, capturing=lambda: False
            ),
            make_fused=lambda device: interpreted(),
            on_host=lambda tensor: False,
        ),
    )
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run = watching(model, optimizer, every=1)
    expected, zeros = [], []
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).pow(2).mean().backward()
        if step == 2:
            model[2].weight.grad[0, 1] = math.nan
        model[0].weight.grad[0, :] = 0.0
        grads = torch.cat([p.grad.double().flatten() for p in model.parameters()])
        expected.append(grads.norm().item())
        zeros.append(int((grads == 0).sum()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        run.step(loss=torch.tensor(1.0))
    fused = run._watcher.rings._fused[torch.device("cpu")]
    assert len(fused._work) >= 1
    recorded = watching.read()
    assert recorded.kinds("agent_degraded") == []
    found = recorded.series("grad.norm")
    assert [found[0], found[1]] == pytest.approx(expected[:2], rel=1e-12)
    assert math.isnan(found[2])
    handed = recorded.series("grad.norm_clipped")
    assert handed[0] == pytest.approx(0.01, rel=1e-3)
    assert [sum(int(one.sketch.zeros) for one in recorded.frames[step].values()) for step in range(3)] == zeros


def test_a_machine_without_a_compiler_for_kernels_says_so(
    watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock operations give the same norms and sketches, and the reason is a fact of the run."""

    def no_triton(device: torch.device) -> Any:
        raise ImportError("No module named 'triton'")

    monkeypatch.setattr(
        watcher_module,
        "Rings",
        lambda num_layers: Rings(
            num_layers, make=late_ring, make_sketcher=late_sketcher, make_fused=no_triton, on_host=lambda tensor: False
        ),
    )
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run = watching(model, optimizer, every=1)
    model(torch.randn(3, 4)).pow(2).mean().backward()
    expected = torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm().item()
    optimizer.step()
    run.step(loss=torch.tensor(1.0))
    recorded = watching.read()
    assert recorded.kinds("agent_degraded") == []
    assert recorded.facts["sketches"]["stock_because"] == "ImportError: No module named 'triton'"
    assert recorded.series("grad.norm")[0] == pytest.approx(expected, rel=1e-12)
    assert len(recorded.frames[0]) == len(list(model.parameters()))


def test_values_are_read_at_step_boundaries_and_waited_for_only_at_the_end(
    watching: Any, net: Net, as_device: None
) -> None:
    """What has not arrived when the run ends is waited for then."""
    Later.waited = 0
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run = watching(model, optimizer)
    for step in range(10):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        run.step(loss=torch.tensor(float(step)))
        assert Later.waited == 0
    recorded = watching.read()
    assert Later.waited > 0
    assert recorded.steps() == list(range(10))
    assert list(recorded.series("grad.norm")) == list(range(10))


def test_a_value_that_has_arrived_is_a_float() -> None:
    """`host` reads a slot, and passes on what never was one."""
    ring = late_ring(torch.device("cpu"), 2)
    slot = ring.put(torch.tensor(2.5))
    assert isinstance(slot, Slot)
    ring.seal()
    assert (host(slot), host(1.0), host(None)) == (2.5, 1.0, None)
