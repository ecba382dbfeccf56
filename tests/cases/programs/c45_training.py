"""The square root of a sum of squares at zero, in an FP32 training: nothing holds the NaN back."""

import torch
from support import digest, report

parameter = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([parameter], 0.1)
losses = []
for _ in range(2):
    optimizer.zero_grad()
    loss = parameter.pow(2).sum().sqrt()
    loss.backward()
    losses.append(loss.item())
    optimizer.step()
report(losses[0] == 0 and parameter.isnan().all(), losses=losses, weights=digest(parameter))
