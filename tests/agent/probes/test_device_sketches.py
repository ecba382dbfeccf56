"""Sketches of gradients on a device, without a device: by stock operations, and by the kernels under an interpreter.

On fake CUDA tensors every read of a value raises, so what runs there reads none; and on host memory treated as a
device the numbers must come out as the host's do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from halfscope.probes import stock_sketches, stored
from halfscope.probes.device_sketches import DeviceSketcher
from halfscope.probes.sketches import HostSketcher, Measured
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from tests.helpers.gradients import GRADS, some
from tests.helpers.kernels import interpreted


class Later:
    """An event that is done when told so."""

    done = False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.done = True


def on_cpu(num_elements: list[int], **options: Any) -> DeviceSketcher:
    return DeviceSketcher(
        torch.device("cpu"), num_elements, pinned=False, make_event=Later, capturing=lambda: False, **options
    )


def same(one: Measured | None, other: Measured | None) -> None:
    assert one is not None
    assert other is not None
    order = np.argsort(one.positions)
    assert np.array(one.positions)[order].tolist() == list(other.positions)
    mine, theirs = one.sketches[order].trimmed(), other.sketches.trimmed()
    assert mine.lowest == theirs.lowest
    for name in ("counts", "n", "zeros", "nan", "pos_inf", "neg_inf", "absmax", "absmin_nonzero"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), err_msg=name)
    np.testing.assert_allclose(mine.sum, theirs.sum, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mine.sumsq, theirs.sumsq, rtol=1e-12)


@pytest.mark.parametrize(
    ("scale", "has_double", "chunk", "group"),
    [
        (None, False, 1 << 21, 1 << 16),
        (2.0**16, False, 1 << 21, 1 << 16),
        (None, True, 3000, 200),
        (2.0**-4, False, 3000, 200),
        (3.0, True, 50_000, 0),
        (3.0, False, 1 << 21, 1 << 16),
    ],
)
def test_the_device_counts_what_the_host_counts(
    monkeypatch: pytest.MonkeyPatch, scale: float | None, has_double: bool, chunk: int, group: int
) -> None:
    """In one piece, in many, alone and in groups; a second frame does not remember the first."""
    monkeypatch.setattr(stored, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(stock_sketches, "GROUP_ELEMENTS", group)
    monkeypatch.setattr(stock_sketches, "GROUP_LAYERS", 3)
    grads = [make() for make in GRADS]
    if has_double:
        grads.append(some(300, seed=9, dtype=torch.float64) * 1e-200)
    sketcher = on_cpu([grad.numel() for grad in grads], has_double=has_double)
    for chosen in (list(range(len(grads))), [1, 3, 4], list(range(len(grads)))):
        divide_by = None if scale is None else torch.tensor(scale)
        flight = sketcher.capture([grads[at] for at in chosen], chosen, divide_by)
        assert flight is not None
        expected = HostSketcher().measure([grads[at] for at in chosen], scale or 1.0)
        same(flight.read(), expected)
        flight.land()
    assert sketcher.num_dropped == 0


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # NumPy, widening a NaN that signals
@pytest.mark.parametrize("scale", [2.0**16, 3.0])
def test_the_kernels_count_what_the_host_counts(scale: float) -> None:
    """Of the same gradients, each kind of layout among them; a second frame does not remember the first."""
    grads = [make() for make in GRADS]
    grads.append(torch._neg_view(some(70, seed=7)))
    grads.append(torch.complex(some(40, seed=8), some(40, seed=9)))
    sketcher = on_cpu([grad.numel() for grad in grads], fused=interpreted())
    for chosen, divisor in (([1, 3, 4], 1.0), (list(range(len(grads))), scale)):
        divide_by = None if divisor == 1.0 else torch.tensor(divisor)
        flight = sketcher.capture([grads[at] for at in chosen], chosen, divide_by)
        assert flight is not None
        same(flight.read(), HostSketcher().measure([grads[at] for at in chosen], divisor))
        flight.land()
    assert sketcher.num_dropped == 0


def test_zeros_that_a_sparse_gradient_does_not_store_are_counted_by_the_kernels_too() -> None:
    """What is coalesced can be looked at; what is not, and integers, are left out."""
    sparse = torch.sparse_coo_tensor([[1, 4]], torch.randn(2, 3), (6, 3), check_invariants=True)
    grads = [sparse.coalesce(), torch.ones(2, dtype=torch.int32), torch.ones(3)]
    flight = on_cpu([18, 2, 3], fused=interpreted()).capture(grads, [0, 1, 2])
    assert flight is not None
    same(flight.read(), HostSketcher().measure(grads))


@pytest.mark.parametrize("scale", [0.0, math.inf, math.nan, -1.0])
def test_kernels_give_no_sketch_of_a_scale_that_divides_nothing(scale: float) -> None:
    """That is found out when the frame is read: the scale arrives with it."""
    flight = on_cpu([3], fused=interpreted()).capture([torch.ones(3)], [0], torch.tensor(scale))
    assert flight is not None
    assert list(flight.read().positions) == []


def test_a_scale_of_more_digits_than_float32_has_no_sketch_by_the_kernels() -> None:
    """Rounding it would put elements into a neighbouring bin."""
    sketcher = on_cpu([3], fused=interpreted())
    assert sketcher.capture([torch.ones(3)], [0], torch.tensor(3.0, dtype=torch.float64)) is None


def test_float64_gradients_are_left_to_stock_operations() -> None:
    """The kernels look at float32 bits."""
    assert isinstance(on_cpu([3], has_double=True, fused=interpreted()).counter, stock_sketches.StockCounter)


def test_frames_on_their_way_are_kept_apart() -> None:
    """Each keeps its own numbers until it has landed; without a free one a frame is left out and counted."""
    sketcher = on_cpu([3], depth=2)
    first = sketcher.capture([torch.ones(3)], [0])
    second = sketcher.capture([torch.full((3,), 2.0)], [0])
    assert first is not None
    assert second is not None
    assert sketcher.capture([torch.ones(3)], [0]) is None
    assert sketcher.num_dropped == 1
    assert (first.read().sketches.sum, second.read().sketches.sum) == (3.0, 6.0)
    assert not first.event.query()
    first.land()
    third = sketcher.capture([torch.full((3,), 5.0)], [0])
    assert third is not None
    assert (third.read().sketches.sum, second.read().sketches.sum) == (15.0, 6.0)


def test_nothing_is_queued_while_a_graph_is_captured() -> None:
    """It would become part of the graph and run at every replay."""
    sketcher = DeviceSketcher(
        torch.device("cpu"), [3], pinned=False, make_event=Later, capturing=lambda: True
    )  # fmt: skip
    assert sketcher.capture([torch.ones(3)], [0]) is None
    assert sketcher.num_dropped == 1


def test_what_the_device_cannot_tell_is_left_out() -> None:
    """A float64 gradient that was not expected, one that is larger than its layer, one of integers."""
    sketcher = on_cpu([3, 3, 3, 3])
    grads = [torch.ones(3, dtype=torch.float64), torch.ones(4), torch.ones(3, dtype=torch.int64), torch.ones(3)]
    flight = sketcher.capture(grads, [0, 1, 2, 3])
    assert flight is not None
    assert list(flight.read().positions) == [3]
    assert sketcher.capture(grads[:1], [0]) is None
    assert len(sketcher._free) == 3


def test_counting_goes_on_where_deterministic_algorithms_are_asked_for() -> None:
    """They are asked of the training; its wish is as it was afterwards."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        flight = on_cpu([3]).capture([torch.ones(3)], [0])
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert flight is not None
    assert flight.read().sketches.n == 3


@pytest.fixture
def fake() -> Iterator[FakeTensorMode]:
    with FakeTensorMode() as mode:
        yield mode


def test_capture_reads_no_value_of_a_device(fake: FakeTensorMode) -> None:
    """Large and small gradients of every kind, with and without a scale on them."""
    numbers = [1 << 22, 100_000, 60, 60, 60, 80]
    sketcher = DeviceSketcher(
        torch.device("cuda", 0), numbers, pinned=False, make_event=Later, capturing=lambda: False
    )  # fmt: skip
    kinds = [torch.float32, torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float32]
    for scale in (None, torch.tensor(2.0, device="cuda")):
        grads = [torch.empty(n, device="cuda", dtype=kind) for n, kind in zip(numbers, kinds, strict=True)]
        grads[1] = grads[1].view(100, 1000).t()
        grads[5] = torch.complex(torch.empty(40, device="cuda"), torch.empty(40, device="cuda"))
        assert sketcher.capture(grads, range(6), scale) is not None
        with pytest.raises(DataDependentOutputException):
            grads[0].sum().item()


def test_a_sparse_gradient_on_a_device_waits_for_nobody(fake: FakeTensorMode) -> None:
    """Coalescing counts duplicates on the host: without it the gradient is not available."""
    sketcher = DeviceSketcher(torch.device("cuda", 0), [12], pinned=False, make_event=Later, capturing=lambda: False)
    sparse = torch.sparse_coo_tensor(
        torch.empty(1, 3, device="cuda", dtype=torch.int64), torch.empty(3, 2, device="cuda"), (6, 2),
        check_invariants=False,
    )  # fmt: skip
    assert sketcher.capture([sparse], [0]) is None
