"""Finding a scaler that steps a watched optimizer though nobody gave it to `watch`.

Invariant: only looks at the frames that are calling the optimizer right now; no search through the heap.
"""

from __future__ import annotations

import sys

import torch

MAX_FRAMES = 24


def calling_scaler(optimizer: torch.optim.Optimizer) -> torch.amp.GradScaler | None:
    """The enabled GradScaler whose `step(optimizer)` is on the stack, None where there is none."""
    frame = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        if frame.f_code.co_name in ("step", "_maybe_opt_step"):
            caller = frame.f_locals.get("self")
            if isinstance(caller, torch.amp.GradScaler) and caller.is_enabled():
                return caller
    return None
