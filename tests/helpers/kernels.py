"""The kernels, on the host: Triton's interpreter, which tests/conftest.py switches on, runs the same source over CPU
tensors."""

from __future__ import annotations

import importlib
from contextlib import nullcontext

import pytest
import torch
from halfscope.kernels import fused
from halfscope.kernels.fused import FusedPass, Tuning

SMALL = Tuning(squares_block=4096, sketch_block=4096, min_piece=1 << 14, columns=512)
"""An operation of the interpreter takes the same time for any block: few large ones."""


class Done:
    """The event of a copy on the host."""

    def record(self) -> None: ...

    def query(self) -> bool:
        return True


def interpreted(tuning: Tuning = SMALL) -> FusedPass:
    """A pass over gradients in host memory, ready for every type; the test is skipped where there is no Triton."""
    language = pytest.importorskip("triton.language")
    kernels = importlib.import_module("halfscope.kernels.triton_kernels")
    types = {dtype: getattr(language, name) for dtype, name in fused.NAMES.items()}
    made = FusedPass(
        torch.device("cpu"), kernels, types, tuning=tuning, pinned=False, stream=lambda: 0, make_event=Done,
        here=nullcontext,
    )  # fmt: skip
    made.prepare([torch.empty(1, dtype=dtype) for dtype in types], tried=True)
    return made
