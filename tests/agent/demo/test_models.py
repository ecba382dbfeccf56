"""The demo's networks, and the mistake that the troubled run makes."""

from __future__ import annotations

import pytest
import torch
from halfscope.demo.data import SIDE, shift_down
from halfscope.demo.models import NUM_CLASSES, ConvNet, RowTransformer
from halfscope.demo.trainings import SAFE_MASK_CONSTANT, TROUBLED_MASK_CONSTANT


def images(*, blank_first_row: bool) -> torch.Tensor:
    """Eight images with ink in every row, one of them moved down where asked for."""
    inked = 0.1 + 0.9 * torch.rand(8, SIDE, SIDE, generator=torch.Generator().manual_seed(3))
    return torch.cat([shift_down(inked[:1], 1), inked[1:]]) if blank_first_row else inked


def logits(mask_constant: float, dtype: torch.dtype | None, *, blank_first_row: bool) -> torch.Tensor:
    torch.manual_seed(0)
    model = RowTransformer(mask_constant)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        return model(images(blank_first_row=blank_first_row))


@pytest.mark.parametrize(
    "model", [ConvNet(), RowTransformer(SAFE_MASK_CONSTANT)], ids=lambda model: type(model).__name__
)
def test_network_names_ten_classes(model: torch.nn.Module) -> None:
    """One logit per class and image, and fewer parameters than would be slow on one processor."""
    assert model(images(blank_first_row=False)).shape == (8, NUM_CLASSES)
    assert sum(parameter.numel() for parameter in model.parameters()) < 25_000


def test_large_mask_constant_gives_nan_in_fp16_when_a_row_may_look_at_nothing() -> None:
    """-1e9 becomes -inf in FP16: an image whose first row is blank gets NaN, and only that image."""
    result = logits(TROUBLED_MASK_CONSTANT, torch.float16, blank_first_row=True)
    assert result[0].isnan().all()
    assert result[1:].isfinite().all()


@pytest.mark.parametrize(
    ("mask_constant", "dtype", "blank_first_row"),
    [
        (TROUBLED_MASK_CONSTANT, torch.float16, False),
        (TROUBLED_MASK_CONSTANT, None, True),
        (TROUBLED_MASK_CONSTANT, torch.bfloat16, True),
        (SAFE_MASK_CONSTANT, torch.float16, True),
    ],
)
def test_same_code_is_finite_elsewhere(mask_constant: float, dtype: torch.dtype | None, blank_first_row: bool) -> None:
    """FP32 and BF16 hold -1e9, FP16 holds -1e4, and without a blank first row -inf does no harm."""
    assert logits(mask_constant, dtype, blank_first_row=blank_first_row).isfinite().all()


def test_rows_do_not_see_later_rows() -> None:
    """Attention is causal: what is below a row does not change what the first row's token becomes."""
    torch.manual_seed(0)
    block = RowTransformer(SAFE_MASK_CONSTANT).blocks[0]
    hidden = torch.ones(1, SIDE, SIDE, dtype=torch.bool).triu(1)
    tokens = torch.randn(1, SIDE, 32)
    changed = tokens.clone()
    changed[:, 4:] += 1.0
    torch.testing.assert_close(block(tokens, hidden)[:, :4], block(changed, hidden)[:, :4])
