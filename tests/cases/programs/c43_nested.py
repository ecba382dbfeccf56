"""NaN and infinities in a batch that is a dictionary with labels and a mask, given by keyword."""

import torch
from support import autocast, digest, grad_scaler, report


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, *, labels: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return (self.linear(batch["values"]).float() * batch["mask"] - labels.float()).pow(2).mean()


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
scaler = grad_scaler(init_scale=256.0)
for step in range(5):
    values = torch.randn(8, 4)
    if step == 0:
        values[6, 1], values[7, 0], values[7, 3] = float("inf"), float("nan"), -float("inf")
    optimizer.zero_grad()
    with autocast():
        loss = model(labels=torch.arange(8), batch={"mask": torch.ones(8, 1), "values": values})
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
report(scaler.get_scale() == 128.0, scale=scaler.get_scale(), weights=digest(model))
