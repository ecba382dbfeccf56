"""Sketches of tensors and of gradients in host memory, against one made element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.probes.sketches import HostSketcher, sketch_of

from tests.helpers.gradients import GRADS, some

Check = Callable[..., None]


def exact(tensor: torch.Tensor) -> list[float]:
    return tensor.detach().to(torch.float64).flatten().tolist()


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
