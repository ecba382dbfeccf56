"""Number formats, against torch's own rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from halfscope.formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32, NumberFormat

DTYPES = {
    "FP32": torch.float32,
    "BF16": torch.bfloat16,
    "FP16": torch.float16,
    "FP8 E4M3": torch.float8_e4m3fn,
    "FP8 E5M2": torch.float8_e5m2,
}


def rounded(value: float, found: NumberFormat) -> float:
    # From float32 for the narrower formats: torch takes float64 through float32 and would round twice.
    source = torch.float64 if found is FP32 else torch.float32
    return torch.tensor(value, dtype=source).to(DTYPES[found.name]).double().item()


def beside(value: float, found: NumberFormat, towards: float) -> float:
    """The next value in the type that `rounded` starts from."""
    if found is FP32:
        return float(np.nextafter(value, towards))
    return float(np.nextafter(np.float32(value), np.float32(towards)))


@pytest.mark.parametrize("found", FORMATS.values(), ids=lambda found: found.name)
def test_limits_are_torchs_own(found: NumberFormat) -> None:
    """Largest value, smallest normal and epsilon as finfo gives them."""
    info = torch.finfo(DTYPES[found.name])
    assert (found.largest, found.smallest_normal, found.epsilon) == (info.max, info.tiny, info.eps)
    assert 1 + found.exponent_bits + found.mantissa_bits == info.bits


@pytest.mark.parametrize("found", FORMATS.values(), ids=lambda found: found.name)
def test_the_edge_of_zero_is_a_tie(found: NumberFormat) -> None:
    """Exactly there a value becomes zero; the next larger becomes the smallest subnormal."""
    assert rounded(found.flushed_at, found) == 0.0
    assert rounded(beside(found.flushed_at, found, 1.0), found) == found.smallest_subnormal


@pytest.mark.parametrize("found", [FP16, BF16, FP32, FP8_E5M2], ids=lambda found: found.name)
def test_the_edge_of_infinity_is_the_first_that_overflows(found: NumberFormat) -> None:
    """65,520 for FP16; just below it is still the largest finite value."""
    assert {"FP16": 65520.0, "FP8 E5M2": 61440.0}.get(found.name, found.overflows_at) == found.overflows_at
    assert rounded(beside(found.overflows_at, found, 0.0), found) == found.largest
    if found is not FP8_E5M2:  # whose cast saturates in some versions of torch
        assert rounded(found.overflows_at, found) == math.inf


def test_e4m3_has_no_infinity() -> None:
    """What is too large saturates or becomes NaN, as the torch version has it."""
    assert not FP8_E4M3.has_infinity
    value = rounded(10_000.0, FP8_E4M3)
    assert value == FP8_E4M3.largest or math.isnan(value)


def test_a_tie_at_the_edge_goes_to_the_even_neighbour() -> None:
    """E4M3's 448 is even and keeps the tie at 464; the largest value of every other format is odd and gives it away."""
    assert [found.name for found in FORMATS.values() if not found.tie_overflows] == ["FP8 E4M3"]
    for found in (FP16, BF16, FP32):
        assert rounded(found.overflows_at, found) == math.inf
    assert rounded(FP8_E4M3.overflows_at, FP8_E4M3) == FP8_E4M3.largest
