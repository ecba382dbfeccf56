"""The input batch: what is in it, on the host and on a device, and that looking at it keeps nothing alive."""

from __future__ import annotations

import dataclasses
import gc
import math
from typing import Any

import numpy as np
import pytest
import torch
from halfscope.probes import inputs
from halfscope.probes.inputs import InputBatch, InputReading
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from torch._subclasses.fake_tensor import FakeTensorMode


def plainly(values: Any) -> tuple[float, int, int, int]:
    """Largest finite magnitude, NaN, infinities and first bad row, by Python's own arithmetic."""
    rows = [row.ravel().tolist() for row in (values if values.ndim else values[None])]
    flat = [value for row in rows for value in row]
    if set(flat) == {0.0, -math.inf}:
        return 0.0, 0, 0, -1
    bad = [at for at, row in enumerate(rows) if any(not math.isfinite(value) for value in row)]
    return (
        max((abs(value) for value in flat if math.isfinite(value)), default=0.0),
        sum(map(math.isnan, flat)),
        sum(map(math.isinf, flat)),
        bad[0] if bad else -1,
    )


@settings(deadline=None, max_examples=100)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=3, max_side=4), elements={"allow_nan": True}))
def test_host_and_device_see_what_is_there(values: Any) -> None:
    """Both ways, against plain arithmetic."""
    expected = plainly(values.astype(np.float64))
    tensor = torch.from_numpy(np.asarray(values))
    found = inputs.read([("x", tensor)])
    assert found is not None
    assert (found.absmax, found.num_nan, found.num_inf, found.first_row) == expected
    finite = [value for value in values.astype(np.float64).ravel().tolist() if math.isfinite(value)]
    assert (found.num_finite, found.sum) == (len(finite), pytest.approx(math.fsum(finite), rel=1e-12, abs=1e-12))
    captured = inputs.of_captured("x", inputs.capture(tensor).tolist())
    assert dataclasses.replace(captured, sum=found.sum) == found
    assert captured.sum == pytest.approx(found.sum, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2], ids=str)
def test_other_floats_are_read_at_their_value(dtype: torch.dtype) -> None:
    """An infinity of a half stays one."""
    tensor = torch.tensor([[1.0, -2.0], [math.inf, 0.0], [math.nan, 3.0]]).to(dtype)
    expected = InputReading("x", 3.0, 1, 1, 1, 2.0, 4)
    assert inputs.read([("x", tensor)]) == expected
    assert inputs.of_captured("x", inputs.capture(tensor).tolist()) == expected


@pytest.mark.parametrize(
    ("values", "num_inf"),
    [
        ([[0.0, -math.inf], [-0.0, 0.0]], 0),
        ([[0.0, math.inf], [0.0, 0.0]], 1),
        ([[-math.inf, -math.inf]], 2),
        ([[0.5, -math.inf]], 1),
    ],
)
def test_a_mask_of_zeros_and_minus_infinity_is_no_bad_input(values: list[list[float]], num_inf: int) -> None:
    """It is added to attention scores; anything else that is infinite is bad."""
    tensor = torch.tensor(values, dtype=torch.float16)
    found = inputs.read([("mask", tensor)])
    assert found is not None
    assert found.num_nonfinite == found.num_inf == num_inf
    assert inputs.of_captured("mask", inputs.capture(tensor).tolist()) == found


def test_the_first_bad_tensor_is_named() -> None:
    """Counts are of all tensors; the row is one of the tensor that is named."""
    good, bad = torch.ones(4, 2), torch.ones(3, 2)
    bad[2, 1] = math.nan
    worse = torch.full((2, 2), math.inf)
    assert inputs.read([("a", good), ("b", bad), ("c", worse)]) == InputReading("b", 1.0, 1, 4, 2, 13.0, 13)
    assert inputs.read([("a", good * 3)]) == InputReading("a", 3.0, 0, 0, -1, 24.0, 8)
    assert inputs.read([]) is None
    assert inputs.joined([]) is None


def test_tensors_are_found_in_containers_and_named_after_their_place() -> None:
    """Positional and by name, in tuples and dictionaries; whole numbers beside them and what is no tensor are passed
    over."""
    x, y, z = torch.ones(2), torch.ones(2), torch.ones(2)
    batch = InputBatch((torch.arange(3), x, {"pixels": y, "ids": torch.arange(2)}), {"extra": [None, (z,)], "flag": 1})
    assert [name for name, _ in batch.tensors()] == ["1", "2.pixels", "extra.1.0"]
    assert [found.data_ptr() for _, found in batch.tensors()] == [x.data_ptr(), y.data_ptr(), z.data_ptr()]


@settings(deadline=None, max_examples=30)
@given(hnp.arrays(hnp.integer_dtypes(endianness="="), hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)))
def test_whole_numbers_have_a_mean_alone(values: Any) -> None:
    """Where there are no others: against exact arithmetic, on the host and on a device."""
    tensor = torch.from_numpy(np.asarray(values))
    (named,) = InputBatch((torch.tensor([True]), tensor), {}).tensors()
    found = inputs.read([named])
    assert found is not None
    assert found.mean == pytest.approx(sum(values.ravel().tolist()) / values.size, rel=1e-12)
    assert (found.argument, found.absmax, found.num_nonfinite, found.num_finite) == ("1", None, 0, values.size)
    assert inputs.of_captured("1", inputs.capture(tensor).tolist()) == dataclasses.replace(
        found, sum=pytest.approx(found.sum, rel=1e-12)
    )


def test_kinds_that_have_no_plain_values_are_passed_over() -> None:
    """Sparse, complex, empty and meta tensors."""
    odd = (torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.complex64), torch.empty(0), torch.ones(2, device="meta"))
    assert InputBatch(odd, {}).tensors() == []


def test_a_batch_is_not_kept_alive() -> None:
    """Once the training lets go of it, it is gone for us too."""
    tensor = torch.ones(3)
    batch = InputBatch((tensor,), {})
    assert len(batch.tensors()) == 1
    del tensor
    gc.collect()
    assert batch.tensors() == []


def test_a_self_referring_argument_ends() -> None:
    """Depth and number of tensors are bounded."""
    loop: list[Any] = []
    loop += [loop, torch.ones(1)]
    assert 0 < len(InputBatch((loop, [torch.ones(1)] * 100), {}).tensors()) <= inputs.MAX_TENSORS


def test_capture_reads_no_value_of_a_device() -> None:
    """Fake CUDA tensors raise where a value is read."""
    with FakeTensorMode():
        assert inputs.capture(torch.empty(3, 4, device="cuda")).shape == (6,)
        assert inputs.capture(torch.empty((), device="cuda", dtype=torch.float16)).shape == (6,)
        assert inputs.capture(torch.empty(3, 4, device="cuda", dtype=torch.int64)).shape == (2,)


def test_looking_does_not_grow_a_graph() -> None:
    """An input that requires gradients stays a leaf that nothing hangs on."""
    tensor = torch.ones(3, 2, requires_grad=True)
    assert inputs.read([("x", tensor)]) == InputReading("x", 1.0, 0, 0, -1, 6.0, 6)
    assert not inputs.capture(tensor).requires_grad
    assert torch.is_grad_enabled()
