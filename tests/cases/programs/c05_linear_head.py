"""Gradients of one layer fall below FP16's floor while the other's stay above it; zero weights are no underflow."""

import torch
from support import autocast, digest, grad_scaler, report


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.low(batch).float() * 1e-9 + self.high(batch).float()


model = TwoHeads()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = grad_scaler(init_scale=1.0)
zeros = []
for _ in range(3):
    optimizer.zero_grad()
    with autocast():
        output = model(torch.randn(8, 16))
    scaler.scale(output.pow(2).mean()).backward()
    zeros.append([(parameter.grad == 0).float().mean().item() for parameter in model.parameters()])
    scaler.step(optimizer)
    scaler.update()
report(zeros[0][0] == 1.0 and zeros[0][2] < 0.1, zeros=zeros, weights=digest(model))
