"""Gradient norms against a plain float64 recomputation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from halfscope.probes import gradients
from hypothesis import given, settings
from hypothesis import strategies as st

VALUES = st.one_of(
    st.floats(width=32, allow_subnormal=True),
    st.sampled_from([0.0, -0.0, 1e-30, 1e30, 3e38, math.inf, -math.inf, math.nan]),
)


def plain_norm(grads: list[torch.Tensor]) -> float:
    dense = [grad.to_dense() if grad.layout is not torch.strided else grad for grad in grads]
    values = [value for grad in dense for value in grad.to(torch.complex128).flatten().tolist()]
    return math.sqrt(sum(abs(value) ** 2 for value in values))


def agree(found: float, expected: float) -> bool:
    return (math.isnan(found) and math.isnan(expected)) or math.isclose(found, expected, rel_tol=1e-5)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=5), min_size=1, max_size=4), st.booleans())
def test_norm_and_bad_layers_are_those_of_the_elements(layers: list[list[float]], exact: bool) -> None:
    """Any float32 values: subnormals, overflowing squares, infinities, NaN; summed exactly or in float64."""
    grads = [torch.tensor(layer, dtype=torch.float32) for layer in layers]
    found = gradients.read(grads, exact=exact)
    assert found is not None
    assert agree(found.norm, torch.cat(grads).double().norm().item())
    assert found.nonfinite == tuple(at for at, layer in enumerate(layers) if not all(map(math.isfinite, layer)))


@pytest.mark.parametrize("foreach", [True, False])
def test_the_norm_is_bitwise_that_of_clip_grad_norm(foreach: bool) -> None:
    """The same operations in the same order."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in (3, 1000, 17)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    found = gradients.read([parameter.grad for parameter in parameters], exact=True)
    assert found is not None
    assert found.norm == torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach).item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e5m2])
def test_other_types_are_accumulated_in_float64(dtype: torch.dtype) -> None:
    """A norm of ours in half precision would itself overflow."""
    values = torch.full((64,), 1000.0).to(dtype)
    found = gradients.read([values, values.reshape(8, 8)])
    assert found is not None
    expected = plain_norm([(values if dtype is not torch.float8_e5m2 else values.float())] * 2)
    assert math.isclose(found.norm, expected, rel_tol=1e-6 if dtype is torch.complex64 else 1e-12)


@pytest.mark.parametrize(
    "grad",
    [
        torch.sparse_coo_tensor([[0, 0, 2]], [[1.0], [2.0], [3.0]], (4, 1), check_invariants=False),
        torch.ones(4, 6)[:, ::2],
        torch.ones(()),
        torch.ones(0),
        torch.ones(3, requires_grad=True) * 2,
    ],
    ids=["sparse", "strided", "scalar", "empty", "with a graph"],
)
@pytest.mark.parametrize("exact", [True, False])
def test_odd_tensors_have_norms(grad: torch.Tensor, exact: bool) -> None:
    """Sparse with duplicates, not contiguous, no dimension, no element."""
    found = gradients.read([grad, torch.ones(2)], exact=exact)
    assert found is not None
    assert math.isclose(found.norm, plain_norm([grad.detach(), torch.ones(2)]), rel_tol=1e-6)
    assert found.nonfinite == ()


@pytest.mark.parametrize("grad", [torch.ones(2, dtype=torch.int32), torch.ones(2, device="meta")])
def test_what_has_no_norm_gives_none(grad: torch.Tensor) -> None:
    """Not available is an answer; zero is not."""
    assert gradients.read([grad]) is None


def test_dividing_by_the_scale_reaches_norms_that_the_scaled_gradient_overflows() -> None:
    """A scaled gradient of 1e25 has no float32 norm; unscaled it has."""
    found = gradients.read([torch.full((4,), 1e25)], 65536.0)
    assert found is not None
    assert math.isclose(found.norm, 2e25 / 65536.0, rel_tol=1e-6)


@pytest.mark.parametrize("values", [[1e25, 1e-30], [math.inf, 1.0], [0.0, 0.0]])
def test_capture_gives_float64_norms_of_each_layer(values: list[float]) -> None:
    """Queued for later, they need no second look."""
    captured = gradients.capture([torch.full((4,), value) for value in values])
    assert captured is not None
    assert captured.dtype is torch.float64
    norms = captured.tolist()
    expected = [2 * abs(value) for value in torch.tensor(values).double().tolist()]
    assert all(agree(found, wanted) for found, wanted in zip(norms, expected, strict=True))
    assert gradients.nonfinite_positions(norms) == tuple(at for at, v in enumerate(values) if not math.isfinite(v))
    assert agree(gradients.total(norms, 2.0), math.sqrt(sum(norm**2 for norm in expected)) / 2.0)


def test_reading_leaves_the_state_of_autograd_alone() -> None:
    """Whether gradients are on or off, they are so afterwards, also after a failure."""
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            gradients.read([torch.ones(2)])
            with pytest.raises(AttributeError):
                gradients.read(["no tensor"])  # type: ignore[list-item]
            assert torch.is_grad_enabled() is enabled


def test_bytes_of_a_sparse_tensor_are_indices_and_values() -> None:
    """Three entries of one float, with one int64 index each."""
    sparse: Any = torch.sparse_coo_tensor([[0, 0, 2]], [[1.0], [2.0], [3.0]], (4, 1), check_invariants=False)
    assert gradients.byte_size(sparse) == 3 * 8 + 3 * 4
