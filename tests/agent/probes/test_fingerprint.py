"""The fingerprint of weights: equal for equal ones, another for any others."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from halfscope.probes.fingerprint import fingerprint
from halfscope.probes.strided import sampled


def weights(seed: int, *, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((70, 50), (50,), (1,), (5000, 3))]


def test_sums_are_of_evenly_strided_elements() -> None:
    """Against NumPy's own strides, in float64: at most 1,024 of each, the first of each among them."""
    parameters = weights(0)
    picked = [p.numpy().ravel()[:: math.ceil(p.numel() / 1024)].astype(np.float64) for p in parameters]
    found = fingerprint(parameters)
    assert found["num_elements"] == sum(map(len, picked)) == 875 + 50 + 1 + 1000
    assert found["num_tensors"] == 4
    assert found["sum"] == pytest.approx(math.fsum(np.concatenate(picked)), abs=1e-11)
    assert found["sum_abs"] == pytest.approx(math.fsum(np.abs(np.concatenate(picked))), abs=1e-11)


def test_equal_weights_agree_and_others_do_not() -> None:
    """A seed makes all the difference; so does one element by one bit, and the order of tensors."""
    assert fingerprint(weights(0)) == fingerprint(weights(0))
    assert fingerprint(weights(0))["digest"] != fingerprint(weights(1))["digest"]
    changed = weights(0)
    changed[1][7] = torch.nextafter(changed[1][7], torch.tensor(9.0))
    assert fingerprint(changed)["digest"] != fingerprint(weights(0))["digest"]
    assert fingerprint(weights(0)[::-1])["digest"] != fingerprint(weights(0))["digest"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_stored_in_half_agree_with_those_they_were_made_of(dtype: torch.dtype) -> None:
    """In the digest of that type, and in no other."""
    name = "digest_" + str(dtype).removeprefix("torch.")
    full, half = fingerprint(weights(0)), fingerprint(weights(0, dtype=dtype))
    assert [key for key in full if key.startswith("digest") and full[key] == half[key]] == [name]


def test_what_has_no_values_is_passed_over() -> None:
    """Parameters on the meta device, whole numbers and empty ones; with nothing else there is no fingerprint."""
    odd = [torch.empty(3, device="meta"), torch.arange(4), torch.empty(0)]
    assert fingerprint(odd) == {}
    assert fingerprint([*odd, torch.ones(2)])["num_tensors"] == 1


def test_a_view_in_another_order_is_looked_at_where_it_lies() -> None:
    """A transposed tensor's elements in the order of its memory, without a copy."""
    tensor = torch.arange(12.0).reshape(3, 4)
    picked = sampled(tensor.t(), 4, may_wait=False)
    assert picked is not None
    assert picked.tolist() == [0.0, 3.0, 6.0, 9.0]
    picked[1] = 50.0
    assert tensor[0, 3] == 50.0
