"""What the launcher asks of a run and of the parts that watch.

Invariant: only looks, or does what a hook of the run itself would have done.
"""

from __future__ import annotations

from typing import Any

import torch

from halfscope.instrument import entry
from halfscope.instrument import scaler as scaler_hooks
from halfscope.instrument.run import Run
from halfscope.record.clock import Phase


def is_watched(item: Any) -> bool:
    """Whether a run that is on watches this model, optimizer or scaler."""
    return id(item) in entry._active


def has_ended(run: Run) -> bool:
    """Whether a run is over."""
    return run._watcher is None


def has_attempts(run: Run, start_step: int) -> bool:
    """Whether an attempt of a run is complete."""
    watcher = run._watcher
    return watcher is not None and (watcher.clock.step > start_step or watcher.clock.phase is Phase.COMPLETE)


def observer_of(scaler_id: int) -> scaler_hooks.ScalerObserver | None:
    """Who is told of a scaler's calls."""
    return scaler_hooks._observers.get(scaler_id)


def forget(scaler_id: int) -> None:
    """A scaler is gone, its id may come again."""
    scaler_hooks._observers.pop(scaler_id, None)


def take_scaler(run: Run, name: str, scaler: torch.amp.GradScaler) -> None:
    """Let a run that is on watch one more scaler."""
    watcher = run._watcher
    if watcher is not None and all(known.scaler is not scaler for known in watcher.scalers):
        watcher.take_scaler(name if not watcher.scalers else f"{name}-{len(watcher.scalers) + 1}", scaler)


def order_is_a_guess(run: Run) -> None:
    """Its optimizers were given in no order of the program's."""
    if run._watcher is not None:
        run._watcher.first_is_a_guess = True
