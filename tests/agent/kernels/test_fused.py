"""The pass over all gradients of a device: tables, cuts and launches. Kernels run in Triton's interpreter."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from halfscope.kernels import rows
from halfscope.kernels.fused import FusedPass, Tuning
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from tests.helpers.gradients import some
from tests.helpers.kernels import Done, interpreted

SCALE = 3.0


def sketched(fused: FusedPass, grads: list[torch.Tensor]) -> torch.Tensor:
    """Rows as the kernels leave them, over memory that held something else."""
    work = fused.find(grads)
    assert work is not None
    out = torch.full((len(grads), rows.ROW_WIDTH), -1, dtype=torch.int64)
    fused.sketch(work, torch.tensor(SCALE), out)
    return out


def counted(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """By frexp in float64: counts of the row of one gradient, divided by SCALE but for its power of two."""
    row = np.zeros(rows.NUM_COUNTS, np.int64)
    finite = values[np.isfinite(values)].astype(np.float64)
    nonzero = finite[finite != 0]
    exponents = np.frexp(nonzero / (SCALE / 2.0))[1] - 1
    is_subnormal = np.abs(nonzero) < 2.0**-126
    np.add.at(row, exponents[~is_subnormal] + 127, 1)
    np.add.at(row, rows.NUM_FIELDS + exponents[is_subnormal] - rows.LOWEST, 1)
    row[rows.KINDS :] = (
        (finite == 0).sum(), np.isnan(values).sum(), (values == np.inf).sum(), (values == -np.inf).sum()
    )  # fmt: skip
    return row


def test_counts_are_the_same_however_the_work_is_cut() -> None:
    """Blocks that end inside a gradient, on its edge and behind it; pieces of one block and of many."""
    whole = some(4_000, seed=3)
    grads = [some(768, seed=1), some(1536, seed=2), whole[1:], some(130, seed=4, dtype=torch.float16)]
    expected = np.stack([counted(grad.double().numpy()) for grad in grads])
    assert (expected[:, [rows.NUM_FIELDS - 1, rows.KINDS - 1]] == 0).all()
    for block, columns, min_piece in ((512, 512, 1 << 14), (1024, 64, 1 << 10), (2048, 512, 1 << 11)):
        fused = interpreted(
            Tuning(sketch_block=block, squares_block=4096, columns=columns, min_piece=min_piece, num_pieces=1)
        )
        found = sketched(fused, grads)[:, : rows.NUM_COUNTS].numpy()
        np.testing.assert_array_equal(found, expected, err_msg=f"blocks of {block}")


def test_one_bin_holds_more_than_float32_could_count() -> None:
    """2^24 + 5 equal numbers, which lie in two pieces."""
    fused = interpreted(Tuning(sketch_block=1 << 20, columns=512, num_pieces=1))
    grad = torch.full(((1 << 24) + 5,), 0.75, dtype=torch.float16)
    row = sketched(fused, [grad])[0]
    assert row[126].item() == grad.numel()  # 0.75 / 1.5 = 2^-1
    assert row[: rows.NUM_COUNTS].sum().item() == grad.numel()


def test_gradients_on_another_device_are_refused() -> None:
    """Their addresses would mean something else here."""
    fused = interpreted()
    assert fused.find([torch.ones(3), torch.ones(3, device="meta")]) is None
    assert fused.find([torch.ones(3)]) is not None


def test_tables_are_sent_to_a_device_without_a_read() -> None:
    """On fake CUDA tensors every read of a value raises."""
    with FakeTensorMode():
        fused = FusedPass(
            torch.device("cuda", 0), Recorded(), {torch.float32: "float32"}, pinned=False, stream=lambda: 0,
            make_event=Done, here=nullcontext,
        )  # fmt: skip
        fused.prepare([], tried=True)
        fused.types[torch.float32] = "float32"
        work = fused._new((0, (256, 512), (70_000, 3), (torch.float32, torch.float32)), [])
        assert work is not None
        assert work.addresses.device.type == "cuda"
        fused.norms(work, torch.empty(2, dtype=torch.float64, device="cuda"))
        with pytest.raises(DataDependentOutputException):
            work.addresses.sum().item()


class Recorded:
    """Kernels that note how they were launched: by Triton's dispatch, or as what it had compiled."""

    PIECE_WIDTH = 320

    def __init__(self) -> None:
        self.launches: list[tuple[str, str, tuple[int, ...], int]] = []

    def __getattr__(self, name: str) -> Any:
        launches = self.launches

        class Compiled:
            def __getitem__(self, grid: tuple[int, ...]) -> Any:
                def launch(*arguments: Any, stream: int) -> None:
                    launches.append((name, f"stream {stream}", grid, len(arguments)))

                return launch

        class Dispatch:
            def __getitem__(self, grid: tuple[int, ...]) -> Any:
                def launch(*arguments: Any, num_warps: int) -> Compiled:
                    launches.append((name, f"{num_warps} warps", grid, len(arguments)))
                    return Compiled()

                return launch

        return Dispatch()


def test_a_kernel_is_looked_up_once_for_each_type_and_grid() -> None:
    """The first launch compiles; later ones call what came of it, with the same arguments, on the stream of the
    tables."""
    kernels = Recorded()
    fused = FusedPass(
        torch.device("cpu"), kernels, {torch.float32: "float32"}, tuning=Tuning(squares_warps=2), pinned=False,
        stream=lambda: 77, make_event=Done, here=nullcontext,
    )  # fmt: skip
    fused.prepare([torch.empty(1)], tried=True)
    work, other = fused.find([torch.ones(3), torch.ones(4)]), fused.find([torch.ones(3)])
    assert work is not None
    assert other is not None
    out = torch.empty(2, dtype=torch.float64)
    for one in (work, work, other):
        fused.norms(one, out)
    assert kernels.launches == [
        ("squares", "2 warps", (2, 1, 1), 5), ("norms", "4 warps", (2, 1, 1), 4),
        ("squares", "stream 77", (2, 1, 1), 5), ("norms", "stream 77", (2, 1, 1), 4),
        ("squares", "2 warps", (1, 1, 1), 5), ("norms", "4 warps", (1, 1, 1), 4),
    ]  # fmt: skip
