"""Sparse embedding gradients, a complex parameter and one that never gets a gradient, trained together."""

import torch
from support import digest, report


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4, sparse=True)
        self.phases = torch.nn.Parameter(torch.ones(4, dtype=torch.cfloat))
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return (self.embedding(tokens) * self.phases).abs().sum()


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
norms = []
for _ in range(3):
    optimizer.zero_grad()
    model(torch.tensor([1, 1, 3])).backward()
    norms.append([model.embedding.weight.grad.norm().item(), model.phases.grad.abs().pow(2).sum().sqrt().item()])
    optimizer.step()
report(model.unused.weight.grad is None, norms=norms, weights=digest(*model.parameters()))
