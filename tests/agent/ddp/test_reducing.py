"""The hook that stands for none: its one pass over a bucket, and what it leaves in the model and in torch."""

from __future__ import annotations

import math
from pathlib import Path

import halfscope
import pytest
import torch
from halfscope.instrument.ddp.reducing import BLOCK_ELEMENTS, _norm_and_divide, default_of
from halfscope.probes import communication
from torch.nn.parallel import DistributedDataParallel

from tests.helpers.recorded import read_journal


@pytest.mark.parametrize("count", [1, 1000, BLOCK_ELEMENTS, 2 * BLOCK_ELEMENTS + 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("divisor", [2, 3, 7])
def test_one_pass_gives_the_norm_before_and_the_quotient_after(count: int, dtype: torch.dtype, divisor: int) -> None:
    """The norm against float64, the rest bit for bit what the reducer's own multiplication of the whole gives."""
    values = torch.randn(count, generator=torch.Generator().manual_seed(count)).to(dtype)
    expected = torch.empty_like(values)
    torch.mul(values, torch.tensor(1.0 / divisor, dtype=torch.float64), out=expected)
    exact = values.double().norm().item()
    assert _norm_and_divide(values, divisor) == pytest.approx(exact, rel=1e-5)
    assert values.view(torch.uint8).equal(expected.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_divided_in_one_pass_is_so_to_the_last_bit(dtype: torch.dtype) -> None:
    """Infinities, NaN, zeros of both signs and subnormals, at addresses that are no multiple of a register's width."""
    tiny, largest = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    kinds = torch.tensor(
        [0.0, -0.0, torch.inf, -torch.inf, torch.nan, tiny, -tiny / 3, largest, 1.0, -7.0], dtype=dtype
    )
    values = kinds.repeat(7)[1:]
    expected = values.clone().mul_(1.0 / 3)
    squares = communication.divide(values, 3)
    if squares is not None:  # without the compiled helper there is no such pass
        assert math.isnan(squares)
        assert values.view(torch.uint8).equal(expected.view(torch.uint8))


@pytest.mark.parametrize("values", [torch.ones(6, dtype=torch.float16), torch.ones(4, 4)[:, ::2], torch.ones(3).long()])
def test_what_is_no_dense_row_of_wide_numbers_is_left_as_it_is(values: torch.Tensor) -> None:
    """The slower way is taken instead."""
    assert communication.divide(values, 2) is None
    assert values.eq(1).all()


@pytest.mark.parametrize("factor", [0.0, 1e-30, 1e-18, 1.0, 1e18, 1e30])
def test_a_norm_that_float32_cannot_square_is_right(alone: None, tmp_path: Path, factor: float) -> None:
    """Gradients far below and above what squares can hold, and none at all."""
    model = DistributedDataParallel(torch.nn.Linear(300, 2, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    run = halfscope.watch(model, optimizer, mode="offline", directory=tmp_path / "journals")
    batch = torch.randn(1, 300) * factor
    model(batch).sum().backward()
    optimizer.step()
    run.finish()
    (recorded,) = read_journal(tmp_path / "journals")
    expected = torch.cat([batch, batch]).double().norm().item()
    assert recorded.series("grad.norm_local") == {0: pytest.approx(expected, rel=1e-5, abs=0.0)}
    assert recorded.series("grad.nonfinite_local") == {0: 0.0}


def test_the_hook_outlives_its_run_and_serves_the_next(alone: None, tmp_path: Path) -> None:
    """It cannot be taken off: after `finish` it does nothing but the reduction, and nothing is kept in the model."""
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = set(vars(model))

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()

    for number in range(2):
        run = halfscope.watch(model, optimizer, mode="offline", directory=tmp_path / str(number))
        assert (default_of(model) is not None) == (number > 0), "not before the first forward pass"
        step()
        hook = default_of(model)
        assert hook is not None
        assert hook.observe is not None
        run.finish()
        assert hook.observe is None
        step()
        (recorded,) = read_journal(tmp_path / str(number))
        assert list(recorded.series("grad.norm_local")) == [0]
    assert set(vars(model)) == before
    assert model._comm_hooks == []


def test_a_hook_registered_after_watch_and_before_the_first_pass_is_the_users(alone: None, tmp_path: Path) -> None:
    """Torch takes one hook alone: ours waits until it is clear that there is none."""
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = halfscope.watch(model, optimizer, mode="offline", directory=tmp_path / "journals")
    model.register_comm_hook(None, halfscope.comm_hooks.bf16_compress)  # type: ignore[no-untyped-call]
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    run.finish()
    (recorded,) = read_journal(tmp_path / "journals")
    assert recorded.facts["comm_hook"] == {
        "name": "halfscope.comm_hooks.bf16_compress",
        "watched": True,
        "compresses_to": "bfloat16",
    }
    assert list(recorded.series("grad.norm_local")) == [0]
