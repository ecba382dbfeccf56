"""Seeing torch's clipping functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.utils.clip_grad as clip_module
from halfscope.instrument import clipping
from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # bound before anything is replaced


@pytest.fixture
def parameter() -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.ones(2))
    made.grad = torch.full((2,), 10.0)
    return made


def test_listeners_see_gradients_before_they_are_clipped(parameter: torch.nn.Parameter) -> None:
    """By norm and by value, foreach or not, given as a list or a generator."""
    seen: list[float] = []
    listener = lambda tensors, total: seen.append(tensors[0][0].item())  # noqa: E731
    clipping.listen(listener)
    try:
        for clip in (
            lambda: clip_grad_norm_([parameter], 1.0),
            lambda: clip_grad_norm_((p for p in [parameter]), 1.0, foreach=False),
            lambda: clip_grad_value_([parameter], 1.0),
            lambda: clip_grad_value_(parameter, 1.0, foreach=False),
        ):
            parameter.grad = torch.full((2,), 10.0)
            seen.clear()
            clip()
            assert seen[0] == 10.0
            assert parameter.grad.max() <= 1.0
    finally:
        clipping.unlisten(listener)


def test_the_globals_are_torchs_own_again_after_the_last_listener() -> None:
    """Two runs at once share one replacement."""
    before = clip_module._get_total_norm, clip_module._group_tensors_by_device_and_dtype
    first, second = (lambda tensors, total: None), (lambda tensors, total: None)
    clipping.listen(first)
    clipping.listen(second)
    clipping.unlisten(first)
    assert clip_module._get_total_norm is not before[0]
    clipping.unlisten(second)
    clipping.unlisten(second)
    assert (clip_module._get_total_norm, clip_module._group_tensors_by_device_and_dtype) == before


def test_somebody_elses_replacement_is_left_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs calls ours, and ours tells nobody any more."""
    seen: list[int] = []
    listener = lambda tensors, total: seen.append(1)  # noqa: E731
    original = clip_module._get_total_norm
    clipping.listen(listener)
    ours = clip_module._get_total_norm
    theirs = lambda *arguments, **options: ours(*arguments, **options)  # noqa: E731
    clip_module._get_total_norm = theirs
    clipping.unlisten(listener)
    assert clip_module._get_total_norm is theirs
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    clip_grad_norm_([parameter], 1.0)
    assert seen == []
    clip_module._get_total_norm = ours
    clipping.listen(listener)
    clipping.unlisten(listener)
    assert clip_module._get_total_norm is original
