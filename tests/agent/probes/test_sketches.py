"""Sketches of tensors and of gradients, against one made element by element; and the device path without a device.

On fake CUDA tensors every read of a value raises, so what runs there reads none; and on host memory treated as a
device the numbers must come out as the host's do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.probes import sketches as probe
from halfscope.probes.sketches import DeviceSketcher, HostSketcher, Measured, sketch_of
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

Check = Callable[..., None]


def exact(tensor: torch.Tensor) -> list[float]:
    return tensor.detach().to(torch.float64).flatten().tolist()


def some(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values over many exponents, with some of every kind."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * 2.0 ** torch.randint(-40, 9, shape, generator=generator)
    flat = values.view(-1)
    if flat.numel() > 20:
        flat[torch.randperm(flat.numel(), generator=generator)[:10]] = torch.tensor(
            [0.0, -0.0, 0.0, math.nan, math.inf, -math.inf, math.inf, 1e-42, -1e-44, 0.0]
        )
    return values.to(dtype)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors are counted fastest, and the same everywhere, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- sketch_of ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2],
    ids=str,
)
def test_every_float_is_counted_at_its_exact_value(assert_is_sketch_of: Check, dtype: torch.dtype) -> None:
    """Halves and FP8 are widened first: their subnormals lie in their own bins."""
    tensor = some(3, 50, dtype=dtype)
    assert_is_sketch_of(sketch_of(tensor), exact(tensor))
    assert_is_sketch_of(halfscope.sketch_of(tensor.t()), exact(tensor))


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.t(),
        lambda t: t[::2, 1:40:3],
        lambda t: t[0].expand(4, 50),
        lambda t: t.view(3, 5, 2, 5, 1).to(memory_format=torch.channels_last_3d),
        lambda t: t[:0],
        lambda t: t[1, 1],
        lambda t: t.requires_grad_(),
        lambda t: torch.nn.Parameter(t),
        lambda t: torch.complex(t, t).imag.conj(),
        lambda t: torch._neg_view(t),
    ],
    ids=["transposed", "strided", "expanded", "channels_last", "empty", "scalar", "grad", "parameter", "imag", "neg"],
)
def test_any_layout_in_memory_is_taken(assert_is_sketch_of: Check, make: Callable[[Any], torch.Tensor]) -> None:
    """Views, parts, and lazily negated ones."""
    tensor = make(some(3, 50))
    assert_is_sketch_of(sketch_of(tensor), exact(tensor))


def test_zeros_that_a_sparse_tensor_does_not_store_are_counted(assert_is_sketch_of: Check) -> None:
    """COO with duplicates, hybrid COO, and CSR: the sketch is that of the dense tensor."""
    indices = torch.tensor([[0, 2, 0], [1, 0, 1]])
    coo = torch.sparse_coo_tensor(indices, torch.tensor([0.5, 2.0, 0.25]), (4, 3), check_invariants=True)
    hybrid = torch.sparse_coo_tensor(torch.tensor([[5, 2]]), torch.randn(2, 3), (7, 3), check_invariants=True)
    csr = torch.eye(4).to_sparse_coo()
    for tensor in (coo, hybrid, csr):
        assert_is_sketch_of(sketch_of(tensor), exact(tensor.to_dense()))


def test_a_complex_tensor_counts_as_its_two_parts(assert_is_sketch_of: Check) -> None:
    """Real and imaginary parts are elements of their own; a conjugate is only a view."""
    tensor = torch.complex(some(40, seed=1), some(40, seed=2))
    expected = [*exact(tensor.real), *exact(tensor.imag)]
    assert_is_sketch_of(sketch_of(tensor), expected)
    assert_is_sketch_of(sketch_of(tensor.conj()), [*exact(tensor.real), *exact(-tensor.imag)])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: torch.ones(3, dtype=torch.int32), TypeError, "torch.int32; expected a floating-point"),
        (lambda: torch.ones(3, dtype=torch.bool), TypeError, "torch.bool; expected a floating-point"),
        (lambda: torch.empty(3, device="meta"), ValueError, "meta device has no values"),
        (lambda: np.ones(3), TypeError, "given ndarray; expected a torch.Tensor"),
        (lambda: 1.0, TypeError, "given float; expected a torch.Tensor"),
        (lambda: None, TypeError, "given NoneType; expected a torch.Tensor"),
    ],
)
def test_what_has_no_sketch_is_refused_with_what_is_expected(
    make: Callable[[], Any], error: type[Exception], words: str
) -> None:
    """Integers, booleans, meta tensors, and what is no tensor."""
    with pytest.raises(error, match=words):
        sketch_of(make())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantised_and_nested_tensors_are_refused_with_what_is_expected() -> None:
    """Each with the call that gives something to sketch."""
    with pytest.raises(TypeError, match="dequantize"):
        sketch_of(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    with pytest.raises(TypeError, match="unbind"):
        sketch_of(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))


def test_sketching_leaves_no_trace(assert_is_sketch_of: Check) -> None:
    """Neither in the tensor nor in autograd's graph or mode."""
    tensor = some(4, 30).requires_grad_()
    doubled = tensor * 2
    before = doubled.detach().clone()
    sketch_of(doubled)
    assert torch.is_grad_enabled()
    assert torch.equal(doubled.detach().nan_to_num(), before.nan_to_num())
    doubled.nan_to_num().sum().backward()
    assert tensor.grad is not None


# ---- gradients in host memory -------------------------------------------------------------------------


GRADS = [
    lambda: some(3, 50, seed=1),
    lambda: some(80, 900, seed=2),
    lambda: some(150, 100, seed=3).t(),
    lambda: some(64, seed=4, dtype=torch.float16),
    lambda: some(5, 64, seed=5, dtype=torch.bfloat16),
    lambda: torch.zeros(40),
    lambda: torch.empty(0),
    lambda: some(30, seed=6, dtype=torch.float8_e5m2),
]
"""Gradients of one optimizer, with the float64 ones left out: small, large, strided, narrow, zero and empty."""


@pytest.mark.parametrize("scale", [1.0, 2.0**16, 2.0**-4, 3.0])
def test_host_sketches_are_of_the_gradients_divided_by_the_scale(assert_is_sketch_of: Check, scale: float) -> None:
    """Each at its own position."""
    grads = [make() for make in GRADS]
    measured = HostSketcher().measure(grads, scale)
    assert measured is not None
    assert list(measured.positions) == list(range(len(grads)))
    for at, grad in enumerate(grads):
        assert_is_sketch_of(measured.sketches[at], [value / scale for value in exact(grad)])


def test_kinds_that_have_no_sketch_are_left_out(assert_is_sketch_of: Check) -> None:
    """The others keep their positions; sparse gradients count what they do not store."""
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 1, 4]]), torch.randn(3, 2), (6, 2), check_invariants=True)
    grads = [torch.ones(3, dtype=torch.int32), torch.ones(2), torch.empty(3, device="meta"), sparse]
    measured = HostSketcher().measure(grads)
    assert measured is not None
    assert list(measured.positions) == [1, 3]
    assert_is_sketch_of(measured.sketches[0], [1.0, 1.0])
    assert_is_sketch_of(measured.sketches[1], exact(sparse.to_dense()))
    assert HostSketcher().measure(grads[:1]) is None
    assert HostSketcher().measure([]) is None


@pytest.mark.parametrize("scale", [0.0, math.inf, math.nan, -1.0])
def test_a_scale_that_divides_nothing_gives_no_sketch(scale: float) -> None:
    """What the gradients were cannot be told any more."""
    assert HostSketcher().measure([torch.ones(3)], scale) is None


def test_a_gradient_with_a_graph_of_its_own_is_sketched_without_growing_it() -> None:
    """create_graph=True gives gradients that require gradients."""
    weight = torch.randn(4, requires_grad=True)
    (grad,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    assert HostSketcher().measure([grad]) is not None
    assert torch.is_grad_enabled()


# ---- on a device ----------------------------------------------------------------------------------------


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
    monkeypatch.setattr(probe, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(probe, "GROUP_ELEMENTS", group)
    monkeypatch.setattr(probe, "GROUP_LAYERS", 3)
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
