"""Full backward hooks on in-place activations: monitoring breaks a model that works."""

from collections.abc import Callable

import torch
from support import report
from torch import nn


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        output = self.convolution(batch)
        output += batch
        return output


def outcome(make: Callable[[], nn.Module], *, hook: bool) -> str:
    model = make()
    batch = torch.randn(1, 3, 4, 4)
    if hook:
        for module in model.modules():
            if not list(module.children()):
                module.register_full_backward_hook(lambda *_: None)
    try:
        model(batch).sum().backward()
    except RuntimeError as error:
        return str(error)[:80]
    return "ok"


MODELS: dict[str, Callable[[], nn.Module]] = {
    "inplace_relu": lambda: nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU(inplace=True)),
    "inplace_add": Residual,
}
results = {
    name: {"plain": outcome(make, hook=False), "with_full_backward_hook": outcome(make, hook=True)}
    for name, make in MODELS.items()
}
late = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
seen: list[torch.Tensor] = []
late[0].register_forward_hook(lambda _module, _inputs, output: seen.append(output))
late(torch.full((1, 3), -5.0))
report(
    all(row["plain"] == "ok" and row["with_full_backward_hook"] != "ok" for row in results.values()),
    **results,
    forward_output_read_late_negative_count=(seen[0] < 0).sum().item(),
)
