"""Tensors of two runs of one computation, against float64 on plain arrays."""

from __future__ import annotations

import math
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.tensors import CHUNK_ELEMENTS, TensorDifference
from scipy.stats import wasserstein_distance


def one(reference: Any, other: Any, **options: Any) -> TensorDifference:
    """The only entry of a comparison of one tensor."""
    (item,) = halfscope.compare_tensors({"x": reference}, {"x": other}, **options)
    return item


def first(items: list[TensorDifference]) -> TensorDifference | None:
    return next((item for item in items if item.diverges), None)


def layer_norm(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Decomposed as exporters do it."""
    mean = x.mean(-1, keepdim=True)
    sub = x - mean
    squares = sub.pow(2)
    variance = squares.mean(-1, keepdim=True)
    rsqrt = torch.rsqrt(variance + 1e-5)
    return {"mean": mean, "sub": sub, "pow": squares, "var": variance, "rsqrt": rsqrt, "out": sub * rsqrt}


def test_the_stage_whose_square_overflows_is_the_first_that_diverges() -> None:
    """In FP16 the square is infinite, and the output, all zero and finite, tells nothing of where that began."""
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) * 400
    items = halfscope.compare_tensors(layer_norm(x), layer_norm(x.half()))
    found = {item.name: item for item in items}
    worst = first(items)
    assert worst is not None
    assert worst.name == "pow"
    assert list(found) == ["mean", "sub", "pow", "var", "rsqrt", "out"]
    assert found["out"].nonfinite == 0
    assert found["out"].zero_share > 0.9
    assert found["out"].relative_error == pytest.approx(1.0, abs=1e-3)
    assert "DIVERGES" in str(worst)
    assert "elements NaN or Inf against 0" in str(worst)


def test_eager_overflows_and_compiled_does_not() -> None:
    """Whichever of the two is the reference."""
    eager, compiled = torch.tensor([math.inf]), torch.tensor([25_000_000.0])
    for a, b, counts in ((eager, compiled, (1, 0)), (compiled, eager, (0, 1))):
        item = one(a, b)
        assert item.diverges
        assert (item.reference_nonfinite, item.nonfinite) == counts


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 0.01), (torch.bfloat16, 10 / 128), (torch.float32, 0.01)]
)
def test_one_rounding_is_no_divergence_and_every_number_is_that_of_float64(
    dtype: torch.dtype, tolerance: float
) -> None:
    """Relative error, zeros, what was lost, and scipy's distance of the exponents."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(100, 50, generator=generator).double() * 2.0 ** torch.randint(
        -40, 3, (100, 50), generator=generator
    )
    y = x.to(dtype)
    item = one(x, y)
    a, b = x.numpy().ravel(), y.double().numpy().ravel()
    assert (item.diverges, item.tolerance) == (False, tolerance)
    assert item.relative_error == pytest.approx(np.linalg.norm(b - a) / np.linalg.norm(a), rel=1e-12)
    assert item.zero_share == (b == 0).mean()
    assert item.lost_share == ((b == 0) & (a != 0)).sum() / (a != 0).sum()
    assert (dtype == torch.float16) == (item.lost_share > 0)
    exponents = [np.frexp(v[v != 0])[1] for v in (a, b)]
    assert item.distance_bits == pytest.approx(wasserstein_distance(*exponents))
    assert "same" in str(item)


def test_what_is_not_finite_in_the_same_places_is_the_same() -> None:
    """A mask of minus infinity is no divergence; another sign, or NaN in its place, is."""
    mask = np.float32([0, -np.inf, np.nan, 1])
    assert not one(mask, mask.copy()).diverges
    assert one(mask, np.float32([0, np.inf, np.nan, 1])).diverges
    assert one(mask, np.float32([0, np.nan, -np.inf, 1])).diverges


def test_tensors_of_every_kind_are_taken() -> None:
    """Sparse, complex, conjugated, of integers, without contiguity, of FP8, with a graph, of other libraries."""
    dense = torch.eye(3)
    assert not one(dense, dense.to_sparse()).diverges
    assert not one(dense.to_sparse(), dense).diverges
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert one(z, z.conj()).relative_error == pytest.approx(math.sqrt(20 / 15))
    assert one(np.arange(4), torch.arange(4)).relative_error == 0
    assert not one(torch.ones(2, 3).t(), torch.ones(3, 2, requires_grad=True)).diverges
    assert not one(torch.tensor([1.0, 0.3]), torch.tensor([1.0, 0.3]).to(torch.float8_e4m3fn)).diverges
    assert one(torch.ones(2), torch.zeros(2).to(torch.float8_e4m3fn)).diverges  # ten of its roundings are the whole
    assert one([1.0, 2.0], (1.0, 3.0)).diverges


def test_sizes_at_the_ends_of_the_range_neither_overflow_nor_vanish() -> None:
    """Squares of 1e200 and 1e-200 are beyond float64; their quotient is not."""
    for size in (1e200, 1e-200, 5e-324):
        assert one(np.float64([size, size]), np.float64([size, 2 * size])).relative_error == pytest.approx(
            math.sqrt(0.5)
        )


def test_a_reference_of_zeros_is_matched_by_zeros_alone() -> None:
    """Nothing can be divided by it."""
    assert one(np.zeros(3), np.zeros(3)).relative_error == 0
    assert one(np.zeros(3), np.float64([0, 0, 1e-9])).relative_error == math.inf


def test_parts_of_large_tensors_add_up() -> None:
    """A difference in the last element of more than one chunk is seen, and none is counted twice."""
    x = np.ones(CHUNK_ELEMENTS + 5, np.float32)
    y = x.copy()
    y[-1] = 0
    item = one(x, y, tolerance=1e-5)
    assert item.relative_error == pytest.approx(1 / math.sqrt(x.size), rel=1e-12)
    assert item.lost_share == 1 / x.size
    assert item.diverges


def test_what_cannot_be_compared_says_why_and_never_diverges() -> None:
    """A missing name, another shape, no element, no value, no numbers."""
    a = {"missing": 1.0, "shape": np.ones(3), "empty": np.ones(0), "meta": torch.ones(2, device="meta"), "text": "x"}
    items = halfscope.compare_tensors(a, {**a, "shape": np.ones(4)} | {"more": 1.0}, tolerance=0.1)
    problems = {item.name: item.problem for item in items}
    assert problems.pop("missing") == ""
    assert list(problems) == ["shape", "empty", "meta", "text"]
    assert problems["shape"] == "its shape is (4,) against (3,)"
    assert all(problems.values())
    assert first(items) is None
    (item, _) = halfscope.compare_tensors({"a": 1.0, "b": 1.0}, {"b": 1.0})
    assert str(item) == "a: not compared, the other has no such name"


def test_wrong_arguments_are_refused_in_words() -> None:
    """With what was seen and what was expected."""
    with pytest.raises(TypeError, match="other is list; expected a mapping of names to tensors"):
        halfscope.compare_tensors({}, [])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no name in common: the reference has 'a', the other none"):
        halfscope.compare_tensors({"a": 1.0}, {})
    with pytest.raises(ValueError, match="tolerance is 0; expected a number above 0"):
        one(1.0, 1.0, tolerance=0)
