"""Hooks against `torch.save(model)` and `copy.deepcopy`, as an EMA makes it."""

import copy
import io
import threading

import torch
from support import report

model = torch.nn.Sequential(torch.nn.Linear(2, 2))
log: list[str] = []
model[0].register_forward_hook(lambda *_: log.append("live"))
save_error = copy_error = None
try:
    torch.save(model, io.BytesIO())
except Exception as error:
    save_error = f"{type(error).__name__}: {str(error)[:80]}"
copied = copy.deepcopy(model)
model(torch.ones(1, 2))
num_live = len(log)
copied(torch.ones(1, 2))


class Recorder:
    """Owns a lock, as a monitor would."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, *_: object) -> None:
        pass


locked = torch.nn.Linear(2, 2)
locked.register_forward_hook(Recorder())
try:
    copy.deepcopy(locked)
except Exception as error:
    copy_error = f"{type(error).__name__}: {str(error)[:60]}"
report(
    save_error and len(log) > num_live and copy_error,
    torch_save_error=save_error,
    calls_recorded_from_copy=len(log) - num_live,
    deepcopy_with_lock_error=copy_error,
    state_dict_keys=list(model.state_dict()),
)
