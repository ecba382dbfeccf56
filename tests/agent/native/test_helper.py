"""The compiled helper against NumPy and against sums made in float64, element by element."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from halfscope import native
from halfscope.probes import gradients, updates
from halfscope.sketch import ArraySketcher, Sketch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytestmark = pytest.mark.skipif(native.helper is None, reason=f"the compiled helper is {native.absent_because}")
BITS = {"e": np.uint16, "f": np.uint32, "d": np.uint64, "H": np.uint16}
COUNTED = ("n", "zeros", "nan", "pos_inf", "neg_inf", "absmax", "absmin_nonzero", "counts")


def both_stacks(arrays: list[Any], divide_by: float = 1.0) -> tuple[Sketch, Sketch]:
    """By the helper, and by NumPy."""
    compiled = ArraySketcher()(arrays, divide_by)
    helper, native.helper = native.helper, None
    try:
        plain = ArraySketcher()(arrays, divide_by)
    finally:
        native.helper = helper
    return compiled, plain


def as_double(array: Any) -> Any:
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):
        return np.asarray(array, np.float64).ravel()


def assert_equal(arrays: list[Any], divide_by: float = 1.0) -> None:
    """Counts and extremes bit for bit, sums but for the rounding of another order."""
    compiled, plain = both_stacks(arrays, divide_by)
    for row, array in enumerate(arrays):
        one, other = compiled[row], plain[row]
        assert one.lowest == other.lowest
        for name in COUNTED:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        with np.errstate(all="ignore"):
            values = as_double(array) / divide_by
            finite = values[np.isfinite(values)]
            room = 1e-13 * float(np.abs(finite).sum())
        assert abs(one.sum - other.sum) <= room or not math.isfinite(room)
        if math.isfinite(other.sumsq):
            assert one.sumsq == pytest.approx(other.sumsq, rel=1e-13, abs=1e-300)
        else:
            assert not math.isfinite(one.sumsq)


@pytest.mark.parametrize("kind", [np.float16, np.uint16])
def test_each_number_of_16_bits_is_in_its_bin(kind: Any) -> None:
    """All 65,536 patterns of FP16 and of BF16, each an array of its own, and all of them in one."""
    values = np.arange(1 << 16, dtype=np.uint16).view(kind)
    for part in values.reshape(64, -1):
        tables = np.zeros((1024, 277), np.int64), np.zeros((5, 1024), np.int64), np.zeros((4, 1024))
        native.helper.sketch(list(part.reshape(-1, 1)), 0.0, -149, *tables)
        exact = as_double(part)
        is_nonzero = np.isfinite(exact) & (exact != 0)
        expected = np.zeros_like(tables[0])
        expected[np.flatnonzero(is_nonzero), np.frexp(exact[is_nonzero])[1] - 1 + 149] = 1
        np.testing.assert_array_equal(tables[0], expected)
        kinds = np.ones(1024), exact == 0, np.isnan(exact), exact == np.inf, exact == -np.inf
        np.testing.assert_array_equal(tables[1], np.stack(kinds))
        finite = np.where(np.isfinite(exact), exact, 0.0)
        smallest = np.where(is_nonzero, np.abs(finite), np.inf)
        np.testing.assert_array_equal(tables[2], np.stack([finite, finite * finite, np.abs(finite), smallest]))
    assert_equal([values])


@pytest.mark.parametrize("code", BITS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_bits_give_what_numpy_gives(code: str, data: st.DataObject) -> None:
    """Arrays of several lengths, of ordinary and of any bits at all; divided by a power of two, by another number."""
    top = np.iinfo(BITS[code]).max
    bits = st.integers(0, top) | st.sampled_from([0, top, top >> 1, (top >> 1) + 1, 1, (top >> 1) + 2])
    array = hnp.arrays(BITS[code], st.integers(0, 37), elements=bits).map(lambda found: found.view(code))
    arrays = data.draw(st.lists(array, max_size=4))
    assert_equal(arrays, data.draw(st.sampled_from([1.0, 65536.0, 2.0**-30, 3.0, 1e-3, 1e300])))


@pytest.mark.parametrize("code", BITS)
def test_ordinary_numbers_of_any_length_give_what_numpy_gives(code: str) -> None:
    """Lengths around those of blocks and of what the interpreter is handed over for; with all kinds among them."""
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore", under="ignore"):
        values = (rng.standard_normal(270_000) * 2.0 ** rng.uniform(-160, 20, 270_000)).astype(np.float32)
        values[rng.integers(0, values.size, 900)] = rng.choice([0.0, -0.0, math.nan, math.inf, -math.inf], 900)
        whole = (values.view(np.uint32) >> 16).astype(np.uint16) if code == "H" else values.astype(code)
    assert_equal([whole[:size] for size in (0, 1, 7, 8, 2047, 2048, 2049, 40_000, 262_144, 270_000)])
    assert_equal([whole[:40_000], whole[5:2100]], 1000.0)


@pytest.mark.parametrize("code", BITS)
def test_neighbouring_powers_of_two_give_what_numpy_gives(code: str) -> None:
    """What nearly every block holds: zeros among numbers of 1 to 40 powers of two, at places where the exponent's bits,
    as a byte, look like a zero's; with one number that is of no such block."""
    rng = np.random.default_rng(7)
    arrays = []
    wide = {"e": (), "f": (-126, 90, 96), "H": (-126, 90, 96), "d": (-1022, -256, 255, 256)}[code]
    for lowest in (-14, -8, -1, 0, 1, *wide):
        for num_powers in (1, 2, 16, 31, 32, 33, 40):
            values = np.ldexp(rng.uniform(1, 2, 2500), rng.integers(lowest, lowest + num_powers, 2500))
            values *= rng.choice([-1.0, 1.0, 0.0], 2500)
            with np.errstate(over="ignore", under="ignore"):
                whole = values.astype(np.float32 if code == "H" else code)
            arrays.append((whole.view(np.uint32) >> 16).astype(np.uint16) if code == "H" else whole)
    odd = arrays[0][:2300].copy()
    odd.view(BITS[code])[7] = np.iinfo(BITS[code]).max
    assert_equal([*arrays, odd, np.zeros(5000, code), arrays[0][:31], arrays[0][:33]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_changes_of_weights_are_what_torch_and_numpy_give(dtype: torch.dtype) -> None:
    """Bit for bit: sizes around what is sampled, axes in any order, gradients of another type, what is not finite."""
    generator = torch.Generator().manual_seed(2)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = [numbers(size).to(dtype) for size in (1, 31, 4095, 4096, 4097, 70_001)]
    weights += [numbers(60, 90).to(dtype).t(), numbers(3, 1, 70, 40).to(dtype).to(memory_format=torch.channels_last)]
    weights[3][:4] = torch.tensor([6e-8, 3e38, -3e38, 1e-45], dtype=torch.float64).to(dtype)
    grads = [torch.empty_like(weight).copy_(numbers(*weight.shape)) for weight in weights]
    grads[3][4:8] = torch.tensor([math.nan, math.inf, 0.0, -0.0])
    grads[4], grads[5][::3] = grads[4].double(), 0.0
    trained = [updates.Trained(torch.nn.Parameter(weight), grad) for weight, grad in zip(weights, grads, strict=True)]
    noted, before = updates.note(trained), updates.before(trained)
    if noted is None:
        pytest.skip("this torch does not hand out where its tensors lie")
    with torch.no_grad():
        for one in trained:
            one.parameter.add_(one.grad.to(dtype).nan_to_num(), alpha=1e-3)
        trained[3].parameter[1:3] *= -1
        trained[2].parameter[5] = math.inf
    found, expected = (updates.measure(ArraySketcher(), each) for each in (noted, before))
    assert list(found.positions) == list(expected.positions)
    for name in (*COUNTED, "lowest", "sum", "sumsq"):
        one, other = getattr(found.sketches, name), getattr(expected.sketches, name)
        np.testing.assert_allclose(one, other, rtol=1e-13 if "sum" in name else 0, err_msg=name)
    trained[0].parameter.data = torch.ones(2, dtype=dtype)
    assert updates.measure(ArraySketcher(), noted) is None
    for weight, grad in (
        (torch.ones(3, 4), torch.ones(4, 3).t()),
        (torch.ones(0), torch.ones(0)),
        (torch.ones(2), torch.ones(2).to_sparse()),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64)),
        (torch._neg_view(torch.ones(2)), torch.ones(2)),
    ):
        assert updates.note([updates.Trained(weight, grad)]) is None


def test_elements_may_lie_anywhere_in_any_order() -> None:
    """Odd addresses, read-only memory, axes in any order, steps and reversed axes, no element, no dimension."""
    for code in BITS:
        size = np.dtype(code).itemsize
        whole = np.random.default_rng(1).integers(0, 256, 1 + 24 * size, np.uint8)
        odd = np.frombuffer(whole.tobytes(), code, offset=1).reshape(2, 3, 4)
        assert_equal([odd, odd.transpose(1, 2, 0), odd[:, ::-1, ::2], odd[:0], odd[0, 0, 0].reshape(())])


def test_a_bin_holds_more_than_2_to_the_24() -> None:
    """Where float32 stops counting."""
    values = np.ones((1 << 24) + 3, np.float16)
    sketch = ArraySketcher()([values])[0]
    assert (sketch.n, sketch.counts.max(), sketch.sum) == (values.size,) * 3


def test_flushed_subnormals_are_counted_all_the_same() -> None:
    """`torch.set_flush_denormal` changes how this thread computes; bits are bits."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    try:
        single = ArraySketcher()([np.array([1, 2, 0], np.uint32).view(np.float32)])[0]
        half = ArraySketcher()([np.array([1, 1024], np.uint16).view(np.float16)])[0]
        double = ArraySketcher()([np.array([1, 1 << 63], np.uint64).view(np.float64)])[0]
        smallest_bits = np.array([double.absmin_nonzero, double.absmax]).view(np.uint64).tolist()
    finally:
        torch.set_flush_denormal(False)
    assert (int(single.zeros), int(single.counts.sum())) == (1, 2)
    assert (single.absmin_nonzero, single.absmax) == (2.0**-149, 2.0**-148)
    assert (half.sum, half.absmin_nonzero) == (2.0**-24 + 2.0**-14, 2.0**-24)
    assert smallest_bits == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_norms_are_those_of_float64(dtype: torch.dtype, data: st.DataObject) -> None:
    """Any values; those that are not finite are found by their layer."""
    special = st.sampled_from([0.0, -0.0, 1e-30, 1e30, 6e4, 6e-8, math.inf, -math.inf, math.nan])
    layers = data.draw(st.lists(st.lists(st.floats(width=32) | special, max_size=40), min_size=1, max_size=4))
    grads = [torch.tensor(layer, dtype=torch.float64).to(dtype) for layer in layers]
    found = gradients.read(grads, 2.0)
    assert found is not None
    expected = math.sqrt(sum(value * value for grad in grads for value in grad.double().tolist())) / 2.0
    assert (math.isnan(found.norm) and math.isnan(expected)) or math.isclose(found.norm, expected, rel_tol=1e-12)
    assert found.nonfinite == tuple(at for at, grad in enumerate(grads) if not bool(grad.isfinite().all()))


def test_what_is_not_dense_memory_of_the_host_is_refused() -> None:
    """By an answer that says so; the careful way takes over."""
    squares = native.helper.squares
    if squares([torch.ones(2)]) is None:
        pytest.skip("this torch does not hand out where its tensors lie")
    plain = torch.arange(24.0).reshape(2, 3, 4)
    expected = float((plain.double() ** 2).sum())
    assert squares([plain, plain.permute(2, 0, 1), plain[1:1]]) == 2 * expected
    assert squares([torch.nn.Parameter(plain), plain.requires_grad_()]) == 2 * expected
    assert squares([]) == 0.0

    class Other(torch.Tensor):
        pass

    refused = [
        plain[:, ::2],
        plain[:, :, :1].expand(2, 3, 4),
        plain.detach().to_sparse(),
        torch.ones(2, device="meta"),
        torch.ones(2, dtype=torch.int32),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2).to(torch.float8_e5m2),
        torch._efficientzerotensor(2),
        torch.ones(2).as_subclass(Other),
        np.ones(2, np.float32),
        None,
    ]
    for one in refused:
        assert squares([torch.ones(2), one]) is None, one
    assert squares((torch.ones(2),)) is None


def test_gradients_are_found_in_the_groups_of_an_optimizer() -> None:
    """Those that are there; of groups that are none, and where there is none, the slower way has to tell."""
    squares = native.helper.gradient_squares
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in (3, 5, 70)]
    groups: list[Any] = [{"params": parameters[:2]}, {"params": []}, {"params": parameters[2:] * 70}]
    assert squares(groups) is None
    parameters[1].grad = torch.full((5,), 2.0)
    parameters[2].grad = torch.full((70,), 0.5)
    expected = 20.0 + 70 * 17.5
    if squares(groups) is None:
        pytest.skip("this torch does not hand out where its tensors lie")
    assert squares(groups) == expected
    parameters[0].grad = torch.tensor([1.0, math.inf, math.nan])
    assert math.isnan(squares(groups))
    for odd in (None, (), [None], [{}], [{"params": None}], [{"params": [None]}], [{"params": tuple(parameters)}]):
        assert squares(odd) is None


def test_large_tensors_let_other_threads_run() -> None:
    """The interpreter is handed over while more than a quarter of a million elements are read."""
    values, ran, done = [np.ones(20_000_000, np.float16)], threading.Event(), threading.Event()

    def other() -> None:
        done.wait(0.001)
        ran.set()

    threading.Thread(target=other).start()
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(60.0)  # nobody is interrupted
    try:
        ArraySketcher()(values)
        assert ran.is_set()
    finally:
        sys.setswitchinterval(interval_s)
        done.set()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (([np.ones(2, np.int32)], 0.0, -149, 277), "expected e, f, d, or H"),
        (([np.ones(2, np.float32)], 0.0, -149, 276), "another size"),
        (([np.ones(2, np.float32)], 0.0, -150, 277), "another size"),
        (([np.ones(2)], 0.0, -149, 277), "exponents"),
        (([np.ones(2, np.float32)], 3.0, -149, 277), "exponents"),
    ],
)
def test_tables_that_do_not_fit_are_refused(arguments: Any, problem: str) -> None:
    """Before anything is written into them."""
    arrays, divide_by, lowest, num_bins = arguments
    tables = np.zeros((1, num_bins), np.int64), np.zeros((5, 1), np.int64), np.zeros((4, 1))
    with pytest.raises((TypeError, ValueError), match=problem):
        native.helper.sketch(arrays, divide_by, lowest, *tables)
    assert not any(table.any() for table in tables)
