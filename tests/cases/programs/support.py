"""What the case programs share: one thread, one seed, and one line of JSON that says what was observed."""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
torch.manual_seed(0)

FP16, BF16 = torch.float16, torch.bfloat16


def autocast(dtype: torch.dtype = FP16) -> torch.autocast:
    return torch.autocast("cpu", dtype=dtype)


def grad_scaler(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def digest(*items: Any) -> str:
    """Of tensors, modules and optimizers, to the last bit: what an undisturbed training ends with."""
    found = hashlib.sha256()
    for item in items:
        if isinstance(item, torch.nn.Module):
            state = item.state_dict()
        elif isinstance(item, torch.optim.Optimizer):
            state = {
                f"{at}.{key}": value for at, row in item.state_dict()["state"].items() for key, value in row.items()
            }
        else:
            state = {"": item}
        for name in sorted(state):
            value = state[name]
            value = value.to_local() if hasattr(value, "to_local") else value
            found.update(name.encode())
            if isinstance(value, torch.Tensor):
                found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def report(reproduced: Any, **observed: Any) -> None:
    print(json.dumps({"reproduced": bool(reproduced), **{name: _plain(value) for name, value in observed.items()}}))


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
