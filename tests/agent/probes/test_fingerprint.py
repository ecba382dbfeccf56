"""The fingerprint of weights: equal for equal ones, another for any others, and read from no device too early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from halfscope.probes.fingerprint import capture, joined
from halfscope.probes.strided import sampled
from torch._subclasses.fake_tensor import FakeTensorMode


def fingerprint(parameters: Sequence[torch.Tensor]) -> dict[str, Any]:
    return joined([(part, part.numbers.tolist()) for part in capture(parameters)])


def splitmix(state: int) -> int:
    """Its last steps, by Python's own whole numbers, with shifts that keep the sign."""
    signed = lambda number: (number + (1 << 63)) % (1 << 64) - (1 << 63)  # noqa: E731
    state = signed((state ^ signed(state) >> 30) * 0xBF58476D1CE4E5B9)
    state = signed((state ^ state >> 27) * 0x94D049BB133111EB)
    return state ^ state >> 31


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


def test_digest_mixes_bits_and_places() -> None:
    """Against Python's unbounded whole numbers: a sum over elements, modulo 2^64."""
    parameters = weights(0)[:2]
    picked = [p.numpy().ravel()[:: math.ceil(p.numel() / 1024)].astype(np.float64) for p in parameters]
    bits = np.concatenate(picked).view(np.int64).tolist()
    golden = 0x9E3779B97F4A7C15
    mixed = (splitmix((each + at * golden + (1 << 63)) % (1 << 64) - (1 << 63)) for at, each in enumerate(bits))
    assert fingerprint(parameters)["digest"] == f"{sum(mixed) % (1 << 64):016x}"


def test_parts_of_several_devices_make_the_same_digest() -> None:
    """A model that is spread over devices, as parts that each know where they begin."""
    parameters = weights(0)
    (whole,) = capture(parameters)
    (first,) = capture(parameters[:1])
    rest = [torch.empty(875, device="meta"), *parameters[1:]]
    assert len(capture(rest)) == 1, "the meta device has no values"
    numbers = torch.stack([whole.numbers, first.numbers]).tolist()
    behind = [a - b for a, b in zip(*numbers, strict=True)]  # exact for halves of a sum of whole numbers
    both = joined([(first, numbers[1]), (replace(whole, num_tensors=3), behind)])
    assert both["digest"] == fingerprint(parameters)["digest"]


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


def test_capture_reads_no_value_of_a_device() -> None:
    """Fake CUDA tensors raise where a value is read; those of two devices are two parts."""
    with FakeTensorMode():
        there = [torch.empty(3, 4, device="cuda"), torch.empty(5, device="cuda", dtype=torch.bfloat16), torch.empty(2)]
        parts = capture(there)
    assert [(part.num_tensors, part.num_elements, part.numbers.shape) for part in parts] == [
        (2, 17, (8,)),
        (1, 2, (8,)),
    ]


def test_a_view_in_another_order_is_looked_at_where_it_lies() -> None:
    """A transposed tensor's elements in the order of its memory, without a copy."""
    tensor = torch.arange(12.0).reshape(3, 4)
    picked = sampled(tensor.t(), 4, may_wait=False)
    assert picked is not None
    assert picked.tolist() == [0.0, 3.0, 6.0, 9.0]
    picked[1] = 50.0
    assert tensor[0, 3] == 50.0
