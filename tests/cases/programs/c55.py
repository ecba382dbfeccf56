"""A dynamic loss scaler with a floor, as DeepSpeed's: the loss is NaN at any scale, and the job ends itself."""

import torch
from support import report


class FlooredScaler:
    def __init__(self, scale: float = 2.0**16, floor: float = 1.0, patience: int = 2) -> None:
        self.scale, self.floor, self.patience = scale, floor, patience

    def overflowed(self) -> None:
        if self.patience > 1:
            self.patience -= 1
        elif self.scale <= self.floor:
            raise RuntimeError("loss scale already at minimum")
        else:
            self.scale = max(self.scale / 2, self.floor)


if __name__ == "__main__":
    scaler = FlooredScaler()
    parameter = torch.nn.Parameter(torch.ones(4))
    died = None
    for step in range(100):
        parameter.grad = None
        (torch.sqrt(parameter - 5.0).sum() * scaler.scale).backward()
        assert not parameter.grad.isfinite().all()
        try:
            scaler.overflowed()
        except RuntimeError:
            died = step
            break
    report(
        died is not None,
        died_at_step=died,
        consecutive_overflows=died + 1,
        warning_possible_at_step=4,
        lead_steps=died - 4,
    )
