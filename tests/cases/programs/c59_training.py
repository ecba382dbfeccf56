"""In-place activations, residual additions and dropout, trained under a scaler."""

import torch
from support import autocast, digest, grad_scaler, report
from torch import nn


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        output = self.convolution(batch)
        output += batch
        return output


model = nn.Sequential(
    Residual(),
    nn.ReLU(inplace=True),
    Residual(),
    nn.Dropout(0.1, inplace=True),
    nn.LeakyReLU(0.1, inplace=True),
    nn.Flatten(),
    nn.Linear(48, 1),
)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
scaler = grad_scaler(init_scale=256.0)
gradients = []
for _ in range(4):
    optimizer.zero_grad()
    with autocast():
        loss = model(torch.randn(2, 3, 4, 4)).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    gradients.append(digest(*(parameter.grad for parameter in model.parameters())))
report(True, gradients=gradients, weights=digest(model, optimizer))
