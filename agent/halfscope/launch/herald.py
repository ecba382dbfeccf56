"""A scaler's observer until its training begins.

Invariant: the call by which a training is noticed is seen by the run that it begins, as if that had been there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from halfscope.instrument import scaler as scaler_hooks
from halfscope.launch import inside


class Herald:
    """Says that a scaler is at work, and hands the call on to the observer that takes its place."""

    def __init__(self, scaler_id: int, works: Callable[[int], Any]) -> None:
        """
        Args:
            works: told the scaler's id; begins a run, or not. Must not raise.
        """
        self._id, self._works = scaler_id, works

    def before_scale(self, outputs: Any) -> None:
        self._works(self._id)
        if (heir := self._heir()) is not None:
            heir.before_scale(outputs)

    def before_unscale(self, optimizer: torch.optim.Optimizer) -> None:
        self._works(self._id)
        if (heir := self._heir()) is not None:
            heir.before_unscale(optimizer)

    def after_unscale(self, optimizer: torch.optim.Optimizer) -> None:
        if (heir := self._heir()) is not None:
            heir.after_unscale(optimizer)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._works(self._id)
        if (heir := self._heir()) is not None:
            heir.before_step(optimizer)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if (heir := self._heir()) is not None:
            heir.after_step(optimizer)

    def before_update(self, new_scale: Any) -> None:
        if (heir := self._heir()) is not None:
            heir.before_update(new_scale)

    def after_update(self, new_scale: Any) -> None:
        if (heir := self._heir()) is not None:
            heir.after_update(new_scale)

    def _heir(self) -> scaler_hooks.ScalerObserver | None:
        observer = inside.observer_of(self._id)
        return None if observer is self else observer
